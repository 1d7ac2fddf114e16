"""Which taints of a node a pod tolerates: the cases of scheduler, controllers and admission."""

import pytest

from dralab.api.core.strategies import strategies
from dralab.api.resource.features import with_gates
from dralab.objects.device_taints import DeviceTaint, DeviceToleration
from dralab.objects.taints import (
    NO_EXECUTE,
    REPELLING,
    UNSCHEDULABLE,
    is_about,
    tolerates,
    untolerated,
)

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": ""}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "x", "operator": "Exists"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "operator": "", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k"}, False),
        # Validation refuses Equal without a key; the rule itself compares values alone.
        ({"value": "v"}, True),
        ({"key": "k", "operator": "Near", "value": "v"}, False),
        ({"key": "k", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_a_taint_is_tolerated_by_key_value_and_effect(toleration, tolerated):
    assert tolerates([toleration], TAINT) is tolerated
    assert tolerates([{"key": "other", "operator": "Exists"}, toleration], TAINT) is tolerated


def test_a_taint_without_a_value_equals_a_toleration_without_one():
    assert tolerates([{"key": "k"}], {"key": "k", "effect": "NoExecute"})
    assert tolerates([{"key": "k", "value": ""}], {"key": "k", "effect": "NoExecute"})
    assert not tolerates([], {"key": "k", "effect": "NoExecute"})


@pytest.mark.parametrize(
    ("operator", "bound", "value", "tolerated"),
    [
        ("Gt", "5", "7", True),
        ("Gt", "7", "7", False),
        ("Gt", "9", "7", False),
        ("Gt", "-8", "-7", True),
        ("Lt", "9", "7", True),
        ("Lt", "7", "7", False),
        ("Lt", "5", "7", False),
        ("Lt", "0", "-1", True),
        ("Gt", "9223372036854775806", "9223372036854775807", True),
        ("Gt", "0", "9223372036854775808", False),
        ("Lt", "0", "-9223372036854775808", True),
        ("Gt", "0", "9" * 5000, False),
        ("Gt", "", "7", False),
        ("Gt", "5", "", False),
        ("Gt", "5", "seven", False),
        ("Gt", "5.5", "7", False),
        ("Gt", "05", "7", False),
        ("Gt", "+5", "7", False),
        ("Lt", "9", "07", False),
        ("Lt", "9", " 7 ", False),
        ("Lt", "1_0", "7", False),
        ("Gt", "-", "7", False),
    ],
)
def test_tolerations_compare_whole_numbers(operator, bound, value, tolerated):
    toleration = {"key": "age", "operator": operator, "value": bound}
    taint = {"key": "age", "value": value, "effect": "NoExecute"}
    assert tolerates([toleration], taint) is tolerated


@pytest.mark.parametrize(
    ("toleration", "about"),
    [
        ({"key": "k"}, True),
        ({"key": "k", "value": "whatever", "effect": "NoExecute"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "effect": "NoSchedule"}, False),
        ({"key": "x", "effect": "NoExecute"}, False),
    ],
)
def test_admission_asks_for_key_and_effect_alone(toleration, about):
    assert is_about(toleration, "k", "NoExecute") is about


def test_the_first_taint_that_nobody_tolerates_is_named():
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    worn = {"key": "worn", "value": "out", "effect": "NoExecute"}
    taints = [soft, TAINT, worn]
    assert untolerated([], taints, REPELLING) is TAINT
    assert untolerated([{"key": "k", "operator": "Exists"}], taints, REPELLING) is worn
    assert untolerated([], taints, {NO_EXECUTE}) is worn
    assert untolerated([{"operator": "Exists"}], taints, REPELLING) is None
    assert untolerated([], [soft], REPELLING) is None
    assert untolerated([{"operator": "Exists"}], [UNSCHEDULABLE], REPELLING) is None


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "x", "operator": "Exists"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k"}, False),
        ({"value": "v"}, True),
        # Numbers are compared for nodes alone.
        ({"key": "k", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_a_taint_of_a_device_is_tolerated_by_key_value_and_effect(toleration, tolerated):
    assert DeviceToleration.read(toleration).tolerates(DeviceTaint.read(TAINT)) is tolerated
    assert DeviceToleration.read(toleration).written is toleration


def test_a_taint_of_a_device_without_an_effect_repels_nobody():
    assert not DeviceTaint.read({"key": "k"}).repels
    assert [
        DeviceTaint("k", "", effect).repels for effect in ("NoSchedule", "NoExecute", "Other")
    ] == [
        True,
        True,
        False,
    ]


class TestTheGate:
    """Whether a server lets tolerations compare numbers."""

    def pod(self, operator="Gt", value="5"):
        toleration = {"key": "age", "operator": operator, "value": value}
        return {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "imagePullPolicy": "Always",
                        "terminationMessagePolicy": "File",
                    }
                ],
                "restartPolicy": "Always",
                "dnsPolicy": "ClusterFirst",
                "tolerations": [toleration],
            },
        }

    def errors(self, kind, obj, gates="", old=None):
        strategy = strategies(with_gates(gates))[kind]
        found = strategy.validate(obj) if old is None else strategy.validate_update(obj, old)
        return [str(error) for error in found if "tolerations" in error.field]

    ON = "TaintTolerationComparisonOperators=true"

    def test_without_it_the_operators_are_not_supported(self):
        [error] = self.errors("pods", self.pod())
        # A server without the gate names them all the same.
        known = 'supported values: "Equal", "Exists", "Lt", "Gt"'
        assert error.endswith(f'Unsupported value: "Gt": {known}')

    def test_with_it_they_take_whole_numbers(self):
        assert self.errors("pods", self.pod(), self.ON) == []
        [error] = self.errors("pods", self.pod(value="05"), self.ON)
        assert error.endswith("must be a valid decimal integer in canonical form")
        [error] = self.errors("pods", self.pod("Near"), self.ON)
        assert error.endswith('supported values: "Equal", "Exists"')

    def test_what_a_server_let_in_before_may_go_on(self):
        assert self.errors("pods", self.pod(), old=self.pod()) == []

    def test_it_holds_for_templates_too(self):
        def deployment(pod):
            labels = {"a": "b"}
            template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            return {"metadata": {"name": "d"}, "spec": spec}

        gt, exists = deployment(self.pod()), deployment(self.pod("Exists", ""))
        assert len(self.errors("apps/deployments", gt)) == 1
        assert self.errors("apps/deployments", gt, self.ON) == []
        assert self.errors("apps/deployments", gt, old=gt) == []
        assert len(self.errors("apps/deployments", gt, old=exists)) == 1

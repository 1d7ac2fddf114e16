"""Small rules of the verbs, each in a table."""

import pytest

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Changed, Key, MemoryStore, Stored
from dralab.apiserver.verbs.kinds.custom_rules import (
    BOUNDED,
    EVALUATED,
    CustomStrategy,
    _has_rules,
    _loops,
    _rules_effort,
    _was_so,
)
from dralab.apiserver.verbs.state.options import WriteOptions
from dralab.apiserver.verbs.state.selectors import selection
from dralab.apiserver.verbs.subresources.scaling import selector_text
from dralab.kernel.randomness import Randomness
from dralab.runtime import local

KINDS = Kinds.standard()


@pytest.mark.parametrize(
    ("group", "plural", "selector", "parts", "wanted"),
    [
        ("", "replicationcontrollers", "status.replicas=0", {}, True),
        ("", "replicationcontrollers", "status.replicas=0", {"status": {"replicas": 0}}, True),
        ("", "replicationcontrollers", "status.replicas=2", {"status": {"replicas": 2}}, True),
        ("", "replicationcontrollers", "status.replicas=0", {"status": {"replicas": 2}}, False),
        ("batch", "jobs", "status.successful=0", {}, True),
        ("batch", "jobs", "status.successful=3", {"status": {"succeeded": 3}}, True),
        ("", "nodes", "spec.unschedulable=false", {}, True),
        ("", "nodes", "spec.unschedulable=false", {"spec": {"unschedulable": True}}, False),
        ("", "events", "source=kubelet", {"source": {"component": "kubelet"}}, True),
        ("", "events", "source=kubelet", {"reportingComponent": "kubelet"}, True),
        (
            "",
            "events",
            "source=kubelet",
            {"source": {"component": "other"}, "reportingComponent": "kubelet"},
            False,
        ),
        ("", "events", "source=", {}, True),
    ],
)
def test_fields_that_are_missing_count_as_their_zero(group, plural, selector, parts, wanted):
    kind = KINDS.find(group, "v1", plural)
    value = {"metadata": {"name": "x", "namespace": "default"}, **parts}
    chosen = selection(kind, "", selector)
    assert chosen.accepts(Stored(Key(kind.hub, "default", "x"), value, 1, 1)) is wanted


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({}, ""),
        ({"app": "x", "a": "y"}, "a=y,app=x"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchLabels": {"m": "1"},
                "matchExpressions": [
                    {"key": "z", "operator": "In", "values": ["b", "a"]},
                    {"key": "y", "operator": "NotIn", "values": ["c"]},
                    {"key": "b", "operator": "Exists"},
                    {"key": "a", "operator": "DoesNotExist", "values": None},
                ],
            },
            "!a,b,m=1,y notin (c),z in (a,b)",
        ),
        ({"matchExpressions": [{"key": "k", "operator": "Exists"}]}, "k"),
    ],
)
def test_a_selector_is_written_as_a_query_has_it(selector, text):
    assert selector_text(selector) == text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {}),
        ({"validation": "Strict", "said": "Strict"}, {"fieldValidation": "Strict"}),
        ({"dry_run": True}, {"dryRun": ["All"]}),
        ({"force": True}, {}),
        ({"manager": "m"}, {"fieldManager": "m"}),
        ({"agent": "curl"}, {}),
    ],
)
def test_a_webhook_is_told_the_options_of_a_write_that_were_given(given, told):
    head = {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert WriteOptions(kind="PatchOptions", **given).as_reviewed("UPDATE") == head | told


@pytest.fixture
def resources():
    return ApiServer(MemoryStore(), randomness=Randomness(1)).resources


def test_a_write_that_others_always_overtake_is_given_up(resources):
    calls = []

    def call(scope):
        calls.append(scope.waits)
        raise Changed if scope.waits else MustWait

    with pytest.raises(ApiError) as refused:
        local.waited(resources.context, call)
    status = refused.value.status()
    assert (status["code"], status["reason"]) == (500, "ServerTimeout")
    assert status["details"]["retryAfterSeconds"] == 1
    assert calls == [False, *[True] * local.TRIES]


def test_a_write_that_waits_is_tried_again_until_no_other_comes_between(resources):
    answers = iter([MustWait, Changed, Changed])

    def call(_scope):
        for error in answers:
            raise error
        return "done"

    assert local.waited(resources.context, call) == "done"
    alone = local.waited(resources.context, lambda scope: (scope.store, scope.waits))
    assert alone == (resources.context.store, False), "without any wait"


@pytest.mark.parametrize(
    ("path", "old", "new", "was_so"),
    [
        ("spec.a", {"spec": {"a": 1}}, {"spec": {"a": 1}}, True),
        ("spec.a", {"spec": {"a": 1}}, {"spec": {"a": 2}}, False),
        ("spec.a", {"spec": {}}, {"spec": {"a": 2}}, False),
        ("spec.a", {"spec": {"a": 1}}, {"spec": {}}, False),
        ("spec.a", {"spec": {"b": 1}}, {"spec": {"b": 1}}, True),
        ("spec.l[1].x", {"spec": {"l": [1], "b": 1}}, {"spec": {"l": [1], "b": 2}}, True),
        ("spec.l[1].x", {"spec": {"l": [1]}}, {"spec": {"l": [1, 2]}}, False),
        # The name of a field may have a dot, which a path does not tell from one between fields.
        ("m.a.b", {"m": {"a": {"b": 1}}}, {"m": {"a": "x"}}, False),
        ("m.a.b", {"m": {"a": "x"}}, {"m": {"a": {"b": 1}}}, False),
    ],
)
def test_only_what_is_as_it_was_may_stay_wrong(path, old, new, was_so):
    assert _was_so(path, new, old) is was_so


RULE = [{"rule": "self.all(a, a.exists(b, b > 0))"}]
LOOPS = {"x-kubernetes-validations": RULE, "type": "array"}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda schema: schema,
        lambda schema: {"properties": {"a": {"type": "string"}, "b": schema}},
        lambda schema: {"items": schema},
        lambda schema: {"additionalProperties": schema},
        lambda schema: {"additionalProperties": True, "items": {"properties": {"c": schema}}},
    ],
)
def test_rules_are_found_and_weighed_wherever_they_stand(wrap):
    schema = wrap(LOOPS)
    assert _has_rules(schema)
    assert _loops(schema) == 2
    assert _rules_effort(schema) == 4
    free = wrap({"type": "array"})
    assert (_has_rules(free), _loops(free), _rules_effort(free)) == (False, 0, 0)


def test_the_costliest_rule_counts_and_levels_with_rules_add_up():
    one = {"rule": "self > 1"}
    message = {"rule": "self > 1", "messageExpression": "self.map(a, a)"}
    schema = {
        "x-kubernetes-validations": [one],
        "properties": {
            "a": {"x-kubernetes-validations": [one, message]},
            "b": {"x-kubernetes-validations": [one]},
        },
    }
    assert _rules_effort(schema) == (2 + 2) + (2 + 2 * 2)
    assert _loops(schema) == 1


@pytest.mark.parametrize(
    ("schema", "size", "added"),
    [
        ({}, 100, 0),
        ({"x-kubernetes-validations": [{"rule": "true"}]}, 100, 400),
        ({"x-kubernetes-validations": [{"rule": "self.all(a, a)"}]}, 100, 400),
        ({"x-kubernetes-validations": RULE}, 100, 400 + EVALUATED * 50**2),
        ({"x-kubernetes-validations": RULE}, 100_000, BOUNDED),
    ],
)
def test_rules_with_nested_loops_cost_more_than_reading(schema, size, added):
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}

    def effort(root, version="v1"):
        strategy = CustomStrategy({"v1": {"schema": {"openAPIV3Schema": root}}})
        return strategy.effort(size, version)

    assert effort({**plain, **schema}) == effort(plain) + added
    assert effort(plain, "unknown") == size

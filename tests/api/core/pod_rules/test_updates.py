"""What may change in a pod that is there."""

import copy

import pytest

from dralab.api.core.pods import PodStrategy

OLD = {
    "metadata": {"name": "p"},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "activeDeadlineSeconds": 5,
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
    },
}
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}
FEW = "spec: Forbidden: pod updates may not change fields other than"


@pytest.fixture
def told():
    def told(part="", mirror=False, **spec):
        strategy, old = PodStrategy(), copy.deepcopy(OLD)
        strategy.default(old)
        if mirror:
            old["metadata"] |= MIRROR
        new = copy.deepcopy(old)
        new["spec"] = {k: v for k, v in {**new["spec"], **spec}.items() if v is not None}
        if part:
            return [str(each) for each in strategy.validate_part(part, new, old)]
        return [str(each) for each in strategy.validate_update(new, old)]

    return told


def test_deadlines_come_closer_and_tolerations_stay(told):
    assert told(activeDeadlineSeconds=4) == []
    assert told(activeDeadlineSeconds=6)[0].startswith(
        "spec.activeDeadlineSeconds: Invalid value: 6"
    )
    assert told(activeDeadlineSeconds=None)[0].startswith("spec.activeDeadlineSeconds: Invalid")
    assert told(tolerations=[])[0].startswith("spec.tolerations: Forbidden: existing toleration")


def test_containers_keep_all_but_their_image(told):
    def box(**more):
        return [{**OLD["spec"]["containers"][0], **more}]

    assert told(containers=box(name="d"))[0].startswith(FEW)
    assert told(containers=box() * 2)[0].startswith("spec.containers: Forbidden: pod updates may")
    assert told(schedulingGates=[{"name": "a"}])[0].startswith(
        "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gates 'a'"
    )


def test_ephemeral_containers_are_only_added(told):
    path = 'spec.ephemeralContainers: Forbidden: existing ephemeral containers "e" may not be'
    assert told("ephemeralcontainers", ephemeralContainers=None)[-1].startswith(f"{path} removed")
    changed = [{**OLD["spec"]["ephemeralContainers"][0], "image": "j"}]
    assert told("ephemeralcontainers", ephemeralContainers=changed)[-1].startswith(
        f"{path} changed"
    )
    assert told("ephemeralcontainers", mirror=True) == [
        "[]: Forbidden: static pods do not support ephemeral containers"
    ]

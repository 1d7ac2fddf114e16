"""What is found out first about a pod that cannot be tried: as kube-scheduler's plugins ask."""

import pytest

from builders import ask, claim, device_class, first_of, pod, worker
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.state import Refusal

VOLUME = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]
OTHER = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "other", "namespace": "default"},
    "spec": {},
}


def blocked(*objects, **spec):
    model = ClusterModel([worker("n"), OTHER, *objects, pod("p", claims={"d": "c"}, **spec)])
    decided = model.try_pod(model.waiting[0])
    assert isinstance(decided, Refusal)
    return str(decided.blocked)


@pytest.mark.parametrize(
    ("deleted", "why"),
    [
        (None, 'resourceclaim.resource.k8s.io "c" not found'),
        (True, 'resourceclaim "c" is being deleted'),
        (False, 'persistentvolumeclaim "none" not found'),
    ],
)
def test_device_claims_come_before_volumes_and_volumes_before_classes(deleted, why):
    made = claim("c", first_of("r", one=ask("none")), namespace="default")
    if deleted:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert blocked(*([] if deleted is None else [made]), volumes=VOLUME) == why


def test_an_alternative_whose_class_is_missing_is_named():
    made = claim("c", first_of("r", one=ask("gpu"), two=ask("none")), namespace="default")
    told = "request r/two: device class none does not exist"
    assert blocked(made, device_class("gpu")) == told

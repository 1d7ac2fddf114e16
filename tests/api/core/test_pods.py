"""The health of devices in a pod's status, under the gate ResourceHealthStatus (KEP-4680)."""

import pytest

from dralab.api.core.pods import PodStrategy
from dralab.api.resource.features import with_gates

OFF = with_gates("ResourceHealthStatus=false,ResourceHealthStatusMessage=false")
ON = with_gates("")


def pod(*, healthy):
    health = [{"name": "claim:c", "resources": [{"resourceID": "d", "health": "Healthy"}]}]
    status = {"name": "a", **({"allocatedResourcesStatus": health} if healthy else {})}
    return {"status": {"containerStatuses": [status], "initContainerStatuses": [dict(status)]}}


@pytest.mark.parametrize(
    ("features", "before", "kept"), [(ON, False, True), (OFF, False, False), (OFF, True, True)]
)
def test_without_the_gate_health_is_dropped_unless_it_is_there_already(features, before, kept):
    new = pod(healthy=True)
    PodStrategy(features).prepare_status(new, pod(healthy=before), "2026-01-01T00:00:00Z")
    for kind in ("containerStatuses", "initContainerStatuses"):
        assert ("allocatedResourcesStatus" in new["status"][kind][0]) == kept

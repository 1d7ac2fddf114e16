import pytest

from dralab.api.resource.features import ALL
from dralab.runtime.resources import PODS
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment


class SchedulingLab(Lab):
    def __init__(self):
        super().__init__(features=ALL)
        self.scheduler = Scheduler(self.manager, SmallEnvironment())

    def node_of(self, name, namespace="default"):
        return self.get(PODS, name, namespace)["spec"].get("nodeName")

    def why(self, name, namespace="default"):
        conditions = self.get(PODS, name, namespace)["status"].get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), None)


@pytest.fixture
def lab():
    return SchedulingLab()

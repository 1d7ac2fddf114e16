"""The test driver of Kubernetes' end-to-end suite for DRA, and the objects that its cases create.

A container sees `user_KEY=VALUE` of the claim's parameters, `admin_KEY=VALUE` of the class's, and
`claim_CLAIM_REQUEST=true` for each request that it gets (test/e2e/dra/test-driver, 1.36).
"""

import copy
import re

from dralab import SimulatedCluster
from dralab.components.nodes import install
from dralab.drivers.driver import ContainerEdits, DeviceHealth, Driver, PrepareError
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.objects.conditions import condition_of
from dralab.objects.pods import is_ready
from dralab.runtime.resources import CLAIM_TEMPLATES, CLAIMS, CLASSES, EVENTS, PODS, SLICES

NAME = "dra.example.com"
PARAMETERS = {"a": "b"}


def plain(count):
    """Devices without attributes."""
    return [{"name": f"device-{number:02}"} for number in range(count)]


class SuiteDriver(Driver):
    """What the cases need of a driver: devices by node, parameters as variables, failures."""

    name = NAME

    def __init__(self, node, devices, counters=()):
        super().__init__(node)
        self.given, self.counters = devices, list(counters)
        self.prepared, self.calls = {}, []
        self.failing = set()
        self.healths = {}

    def inventory(self):
        found = super().inventory()
        if self.counters:
            found = [*found, type(found[0])(counters=self.counters)]
        return found

    def devices(self):
        return copy.deepcopy(self.given)

    def edits(self, claim, result):
        env = [f"claim_{claim.ref.name}_{result.base}=true".replace("-", "_")]
        for config in claim.configs:
            if config.covers(result):
                who = "admin" if config.source == "FromClass" else "user"
                env += [f"{who}_{key}={value}" for key, value in config.parameters.items()]
        return ContainerEdits(env=tuple(env))

    def prepare(self, claim):
        self.calls.append("prepare")
        if "prepare" in self.failing:
            raise PrepareError("told to fail")
        self.prepared[claim.ref.uid] = claim.ref.name
        return super().prepare(claim)

    def unprepare(self, ref):
        self.calls.append("unprepare")
        if "unprepare" in self.failing:
            raise PrepareError("told to fail")
        self.prepared.pop(ref.uid, None)

    def health(self):
        return list(self.healths.values())


class SuiteLab(SimulatedCluster):
    """A cluster with the driver on each node; `devices` is a number, or a list for each node."""

    def __init__(self, devices=1, *, nodes=1, drivers=1, counters=(), parameters=None, **options):
        names = [f"node-{number}" for number in range(nodes)]
        each = [plain(devices)] * nodes if isinstance(devices, int) else devices
        super().__init__(nodes=names, **options)
        self.parts = []
        for number in range(drivers):
            name = NAME if number == 0 else f"other-{number}.example.com"
            for node, given in zip(names, each, strict=True):
                self.run_driver(node, given, name=name, counters=counters)
            config = [{"opaque": {"driver": name, "parameters": parameters}}]
            spec = {"selectors": [{"cel": {"expression": f"device.driver == '{name}'"}}]}
            spec |= {"config": config} if parameters else {}
            self.create(self.object("DeviceClass", name, spec=spec))
        self.wait(5)

    def run_driver(self, node, devices, *, name=NAME, counters=()):
        """Have the driver on a node."""
        driver = SuiteDriver(node, devices, counters)
        driver.name = name
        self.parts.append(driver)
        install(self.kubelets.nodes[node], driver, self.publisher)
        self.wait(5)
        return driver

    @property
    def driver(self):
        return self.parts[0]

    def instance(self, of):
        """Another instance of a driver on its node, which publishes nothing yet."""
        kubelet = self.kubelets.nodes[of.node]
        driver = SuiteDriver(of.node, of.given)
        plugin = HostedPlugin(driver, kubelet.client, kubelet.directory)
        kubelet.register(plugin)
        self.parts.append(driver)
        return driver, plugin

    @staticmethod
    def object(kind, name, *, version="v1", **parts):
        metadata = {"name": name}
        if kind not in {"DeviceClass", "DeviceTaintRule"}:
            metadata["namespace"] = "default"
        api = f"resource.k8s.io/{version}"
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}

    def spec(self, *requests, parameters=PARAMETERS, driver=NAME, config=None, **more):
        """A claim's spec: one device of the driver's class, and the parameters."""
        devices = {"requests": list(requests) or [self.request("req-0", driver)], **more}
        devices["config"] = config or [self.config(parameters, driver=driver)]
        return {"devices": devices}

    @staticmethod
    def config(parameters, *requests, driver=NAME):
        found = {"opaque": {"driver": driver, "parameters": parameters}}
        return found | ({"requests": list(requests)} if requests else {})

    @staticmethod
    def request(name, of=NAME, **more):
        return {"name": name, "exactly": {"deviceClassName": of, **more}}

    def claim(self, name, *requests, **more):
        return self.object("ResourceClaim", name, spec=self.spec(*requests, **more))

    def template(self, name, *requests, **more):
        spec = {"spec": self.spec(*requests, **more)}
        return self.object("ResourceClaimTemplate", name, spec=spec)

    def pod(self, name, *, external=(), inline=(), containers=("with-resource",), **more):
        """A pod whose containers use all its claims; names are those of claims and templates."""
        entries = [{"name": claim, "resourceClaimName": claim} for claim in external]
        entries += [{"name": made, "resourceClaimTemplateName": made} for made in inline]
        made = [self.container(each) for each in containers]
        for container in made:
            container["resources"] = {"claims": [{"name": entry["name"]} for entry in entries]}
        found = {"containers": made, **more}
        found["resourceClaims"] = entries
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found}

    @staticmethod
    def container(name, resources=None, command="export; sleep 100000"):
        found = {"name": name, "image": "x", "command": ["bash", "-c", command]}
        return found | ({"resources": resources} if resources else {})

    # --- what is there ------------------------------------------------------------------------

    def get(self, name, of=PODS):
        return self.client.get(of, name, "default" if of.namespaced else "")

    def all(self, of):
        items = self.client.list(of, "default" if of.namespaced else "").items
        return copy.deepcopy(list(items))

    def slices(self):
        return [one for one in self.all(SLICES) if one["spec"]["driver"] == NAME]

    def phase(self, name):
        return self.get(name)["status"]["phase"]

    def is_running(self, name):
        pod = self.get(name)
        return pod["status"]["phase"] == "Running" and is_ready(pod)

    def why_pending(self, name):
        """The message of a pod that cannot be scheduled."""
        pod = self.get(name)
        found = condition_of(pod, "PodScheduled")
        assert found is not None, pod["status"]
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")
        return found["message"]

    def results(self, claim):
        return self.get(claim, CLAIMS)["status"]["allocation"]["devices"]["results"]

    def env(self, pod, container="with-resource"):
        """The variables of a container that the driver set: as in the suite, by their beginnings."""
        found = re.findall(
            r'^declare -x (\w+)="(.*)"$', self.log("default", pod, container), re.MULTILINE
        )
        return {key: value for key, value in found if re.match("user_|admin_|claim_", key)}

    def events(self, reason):
        return [event for event in self.all(EVENTS) if event["reason"] == reason]

    def told(self, driver, device, health, message):
        """Report the health of a device, and return what the pod's status says of it."""
        key = (driver.node, device)
        driver.healths[key] = DeviceHealth(
            pool=driver.node, device=device, health=health, message=message
        )
        self.kubelets.nodes[driver.node].wake_all()
        self.wait(2)

    def update_class(self, **spec):
        held = self.get(NAME, CLASSES)
        self.client.update(CLASSES, {**held, "spec": {**held["spec"], **spec}})
        self.wait(10)


__all__ = ["CLAIMS", "CLAIM_TEMPLATES", "NAME", "PODS", "SuiteDriver", "SuiteLab", "plain"]

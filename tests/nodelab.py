"""One node in simulated time that can be stopped and started, with drivers that do as told."""

from dataclasses import dataclass, field

from dralab import SimulatedCluster
from dralab.contracts.cdi import CdiDevice, CdiSpec, ContainerEdits, file_name, qualified
from dralab.contracts.cdi_cache import MemoryDirectory
from dralab.contracts.plugin import DeviceHealth, PluginError, PreparedDevice, PrepareResult
from dralab.node.checkpoint import NodeFileCheckpoint
from dralab.node.node_spec import NodeSpec
from dralab.runtime.resources import CLAIMS, PODS, SLICES

NODE = "n1"
DRIVER = "test-driver.cdi.k8s.io"


@dataclass
class ScriptedPlugin:
    """A driver on the node: what it was asked, and what it is to answer."""

    lab: "NodeLab"
    driver: str = DRIVER
    calls: list = field(default_factory=list)
    failing: set = field(default_factory=set)  # verbs that fail
    healths: dict = field(default_factory=dict)

    def prepare(self, claims):
        self._asked("prepare")
        return {ref.uid: PrepareResult(devices=self._devices(ref)) for ref in claims}

    def unprepare(self, claims):
        self._asked("unprepare")
        return {ref.uid: "" for ref in claims}

    def health(self):
        return list(self.healths.values())

    def tell(self, device, health, pool="pool"):
        """Report the health of a device."""
        self.healths[pool, device] = DeviceHealth(pool=pool, device=device, health=health)
        self.lab.kubelet.wake_all()
        self.lab.wait(1)

    def count(self, verb):
        return sum(each == verb for each, _ in self.calls)

    def _asked(self, verb):
        self.calls.append((verb, verb not in self.failing))
        if verb in self.failing:
            raise PluginError(f"simulated failure of {verb}")

    def _devices(self, ref):
        claim = self.lab.client.get(CLAIMS, ref.name, ref.namespace)
        kind = f"{self.driver}/device"
        found = []
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if result["driver"] == self.driver:
                share = result.get("shareID", "")
                found.append(
                    PreparedDevice(
                        requests=(result["request"],),
                        pool=result["pool"],
                        device=result["device"],
                        cdi_ids=(qualified(kind, f"{ref.uid}-{result['device']}{share}"),),
                        share_id=share,
                    )
                )
        edits = ContainerEdits(env=("A=1",))
        names = dict.fromkeys(one.cdi_ids[0].partition("=")[2] for one in found)
        spec = CdiSpec(kind=kind, devices=tuple(CdiDevice(name, edits) for name in names))
        self.lab.cdi.write(file_name(kind, ref.uid), spec)
        return tuple(found)


class NodeLab(SimulatedCluster):
    """The node, its files over restarts, and pods whose claims are allocated to its drivers."""

    def __init__(self, path, **options):
        super().__init__(nodes=(), **options)
        self.path, self.cdi, self.plugins = path, MemoryDirectory(), []
        self.kubelets.on_node = lambda kubelet: [kubelet.register(one) for one in self.plugins]
        self.kubelet = None

    def driver(self, name=DRIVER):
        """Have a driver on the node."""
        found = ScriptedPlugin(self, name)
        self.plugins.append(found)
        if self.kubelet is not None:
            self.kubelet.register(found)
        return found

    def start(self):
        self.kubelet = self.kubelets.add_node(
            NodeSpec(name=NODE),
            directories=[self.cdi],
            checkpoint=NodeFileCheckpoint(self.path / "dra_manager_state"),
        )
        self.wait(2)

    def stop(self):
        """End the kubelet's process; its containers go on."""
        del self.kubelets.nodes[NODE]
        self.kubelet = None

    def restart(self):
        self.stop()
        self.start()

    def pod(
        self, *drivers, name="drapod", seconds=1, devices=("dev-0",), shares=(), wait=5, skips=()
    ):
        """Create a claim with devices of drivers, and a pod on the node that uses it."""
        drivers = drivers or (DRIVER,)
        requests, results = [], []
        for d, driver in enumerate(drivers):
            for i, device in enumerate(devices):
                request = f"r{d}-{i}"
                requests.append({"name": request, "exactly": {"deviceClassName": "draclass"}})
                result = {"request": request, "driver": driver, "pool": "pool", "device": device}
                result |= {"skipNodeOperations": list(skips)} if skips else {}
                ids = shares or [None]
                results += [{**result, "shareID": share} if share else result for share in ids]
        claim = {"metadata": {"name": f"claim-{name}"}, "spec": {"devices": {"requests": requests}}}
        claim = self.client.create(CLAIMS, claim, "default")
        container = {
            "name": "ctr",
            "image": "x",
            "command": ["sh", "-c", f"sleep {seconds}"],
            "resources": {"claims": [{"name": "c"}]},
        }
        pod = self.client.create(
            PODS,
            {
                "metadata": {"name": name},
                "spec": {
                    "nodeName": NODE,
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "resourceClaims": [{"name": "c", "resourceClaimName": f"claim-{name}"}],
                    "containers": [container],
                },
            },
            "default",
        )
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
        self.client.update(CLAIMS, {**claim, "status": status}, subresource="status")
        self.wait(wait)

    def delete(self, name="drapod", grace=None):
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.client.delete(PODS, name, "default", options=options)
        self.wait(5)

    def phase(self, name="drapod"):
        found = self.pods("default").get(name)
        return found["status"].get("phase") if found else None

    def health(self, name="drapod"):
        """Return what the pod's status says of its devices: health by CDI id's end."""
        [status] = self.pods("default")[name]["status"]["containerStatuses"]
        return [
            one["health"]
            for entry in status.get("allocatedResourcesStatus", ())
            for one in entry["resources"]
        ]

    def slices(self):
        return sorted(one["metadata"]["name"] for one in self.client.list(SLICES).items)

    def slice(self, name, node=NODE, driver=DRIVER):
        spec = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev-0"}],
        }
        self.client.create(SLICES, {"metadata": {"name": name}, "spec": spec})

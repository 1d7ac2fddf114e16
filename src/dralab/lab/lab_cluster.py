"""A whole cluster in simulated time: server, scheduler, controllers, nodes and their drivers.

>>> cluster = LabCluster(nodes=2, drivers=["gpu"])
>>> cluster.wait(3600)
>>> sorted(cluster.nodes())
['node-1', 'node-2']
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from dralab.api.yaml_documents import documents as read_documents
from dralab.components.nodes import install
from dralab.components.simulated import SimulatedCluster
from dralab.drivers.catalog import DRIVERS, device_class
from dralab.drivers.driver import Driver
from dralab.drivers.publishing import SlicePublisher
from dralab.files.reading import read
from dralab.node.kubelet import Kubelet
from dralab.node.kubelets import Kubelets
from dralab.node.node_spec import NodeSpec
from dralab.node.simulated_runtime import SimulatedRuntime
from dralab.runtime.resources import CLASSES, NODES, PODS, resource_of
from dralab.values.json_types import JsonDict

Documents = str | PathLike[str] | Mapping[str, Any]
MakeDriver = Callable[[str], Driver]


class LabCluster(SimulatedCluster):
    """A cluster with nodes; nothing ever waits, and the same calls and seed give the same bytes.

    `nodes` is how many (`node-1` …), their names, or `NodeSpec`s. `drivers` are names of the fake
    drivers, or what makes a driver for a node's name. All else is as for the cluster without nodes
    (`dralab.components.simulated`): `seed`, `beginning`, `without`, `profiles`, `features`, and the
    `version` of Kubernetes, such as "1.34".
    """

    def __init__(
        self,
        *,
        nodes: int | Sequence[str | NodeSpec] = 1,
        drivers: Sequence[str | MakeDriver] = (),
        extended: str = "",
        **options: Any,
    ) -> None:
        if isinstance(nodes, int) and nodes < 0:
            raise ValueError(f"nodes: {nodes} is not a number of nodes")
        super().__init__(**options)
        self.kubelets = Kubelets(self.manager, SimulatedRuntime(self.engine))
        self.publisher = SlicePublisher(self.manager, mend_after=0)
        specs = list(map(_spec, _names(nodes) if isinstance(nodes, int) else nodes))
        makers = [_maker(each) for each in drivers]
        self.drivers = [make(spec.name) for spec in specs for make in makers]
        self.kubelets.on_node = self._install
        for name in sorted({driver.name for driver in self.drivers}):
            self.client.create(CLASSES, device_class(name, extended=extended))
        for spec in specs:
            self.kubelets.add_node(spec)
        self.wait(1)

    def _install(self, kubelet: Kubelet) -> None:
        for driver in self.drivers:
            if driver.node == kubelet.name:
                install(kubelet, driver, self.publisher)

    def apply(self, *documents: Documents) -> list[JsonDict]:
        """Create or update the objects of files, YAML texts or mappings, as `kubectl apply`.

        Returns them as they are stored. ApiError: a refusal, with nothing after it applied.
        """
        return [self._apply(item) for each in documents for item in _items(each)]

    def create(self, *documents: Documents, wait: float = 10) -> list[JsonDict]:
        """Create the objects of files, YAML texts or mappings, and let `wait` seconds pass.

        Returns them as they were stored at first. ApiError: a refusal, or one exists already.
        """
        made = []
        for item in (item for each in documents for item in _items(each)):
            resource = resource_of(self.server.resources.kinds, item)
            namespace = item["metadata"].get("namespace") or "default" * resource.namespaced
            made.append(self.client.create(resource, item, namespace))
        self.wait(wait)
        return made

    def delete(self, namespace: str, *pods: str, wait: float = 60) -> None:
        """Delete pods, and let `wait` seconds pass, in which they end. ApiError."""
        if not pods:
            raise ValueError(f"delete: name the pods after their namespace, {namespace!r}")
        for pod in pods:
            self.client.delete(PODS, pod, namespace)
        self.wait(wait)

    def _apply(self, item: JsonDict) -> JsonDict:
        resource = resource_of(self.server.resources.kinds, item)
        metadata = item["metadata"]
        namespace = metadata.get("namespace") or "default" * resource.namespaced
        return self.client.patch(
            resource,
            metadata["name"],
            item,
            namespace,
            type="apply",
            field_manager="dralab",
            force=True,
        )

    def __repr__(self) -> str:
        return f"<SimulatedCluster of {len(self.nodes())} nodes, {len(self.pods())} pods>"

    def pods(self, namespace: str = "") -> dict[str, JsonDict]:
        """Return the pods by name; without a namespace all, as NAMESPACE/NAME."""
        items = self.client.list(PODS, namespace).items
        if namespace:
            return {item["metadata"]["name"]: item for item in items}
        return {f"{m['namespace']}/{m['name']}": item for item in items if (m := item["metadata"])}

    def nodes(self) -> dict[str, JsonDict]:
        """Return the nodes by name."""
        return {item["metadata"]["name"]: item for item in self.client.list(NODES).items}

    def log(self, namespace: str, pod: str, container: str = "") -> str:
        """Return what a container wrote, by default the pod's first; nothing before it began.

        ApiError: no such pod.
        """
        found = self.client.get(PODS, pod, namespace)
        named = container or found["spec"]["containers"][0]["name"]
        run = self.kubelets.find_container(found, named)
        if run is None:
            return ""
        return "".join(f"{line}\n" for _, line in run.log.read()[0])


def _names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


def _spec(node: str | NodeSpec) -> NodeSpec:
    return NodeSpec(name=node) if isinstance(node, str) else node


def _maker(driver: str | MakeDriver) -> MakeDriver:
    if not isinstance(driver, str):
        return driver
    if driver not in DRIVERS:
        raise ValueError(f"no driver {driver!r}; there are {', '.join(DRIVERS)}")
    return DRIVERS[driver]


def _items(documents: Documents) -> list[JsonDict]:
    if isinstance(documents, Mapping):
        return [dict(documents)]
    is_text = isinstance(documents, str) and "\n" in documents
    text: Any = documents if is_text else read(Path(documents))
    found: list[JsonDict] = []
    for document in read_documents(text):
        item = document.value
        if item is not None:
            found += item["items"] if item.get("kind", "").endswith("List") else [item]
    return found

"""`fleet:` of a scenario: its nodes, in any supported format."""

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dralab.api.manifests import load as load_manifests
from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.files import MARK, is_snapshot, read_file
from dralab.drivers.catalog import DRIVERS
from dralab.files.reading import open_file
from dralab.fleet import shapes
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import metadata_of, spec_of, status_of
from dralab.scenarios import code
from dralab.scenarios.errors import InputError, InputProblems
from dralab.scenarios.fields import Fields, numbered
from dralab.scenarios.tables import (
    Given,
    Table,
    count,
    field,
    file,
    label,
    labels,
    not_one_of,
    quantity,
    row,
    rows,
    texts,
    whole,
)
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.platforms.platform import Platform, plain
from dralab.simulation.scenario import simulator_config
from dralab.simulation.scenario.manifests import Arrival
from dralab.simulation.scenario.simulator_config import TickConfig
from dralab.simulation.traces import formats as traces
from dralab.simulation.workloads import openb
from dralab.simulation.workloads.openb import GpuNode
from dralab.values import json_schema
from dralab.values.json_schema import PYTHON, any_of
from dralab.values.json_types import JsonDict
from dralab.values.quantity import QuantityError, parse_any

MOST_NODES: Final = 1_000_000
MOST_CARDS: Final = 10_000  # of a node
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "alibabacloud.com/gpu-count")
CAPACITY: Final = frozenset({"Node", "ResourceSlice", "DeviceClass", "DeviceTaintRule"})
RUNNING: Final = frozenset(
    {"Pod", "PodGroup", "PodDisruptionBudget", "ResourceClaim", "ResourceClaimTemplate"}
)
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MODEL_LABELS: Final = (
    "nvidia.com/gpu.product", "alibabacloud.com/gpu-card-model", "amd.com/gpu.product-name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScenarioFleet:
    """Nodes for pods, or a platform for rigid jobs.

    `objects` are all that came with nodes from files: slices, classes, the nodes themselves.
    `running` are the pods of a snapshot and what belongs to them, as their cluster had them.
    `changes` are what becomes of them, in a recorded history. GPUs that are `counted` are numbers
    of nodes and pods, and do not become devices. `tick` is the step of the engine `ticks`, in
    nanoseconds.
    """

    nodes: tuple[GpuNode, ...] = ()
    platform: Platform | None = None
    objects: tuple[JsonDict, ...] = ()
    running: tuple[JsonDict, ...] = ()
    changes: tuple[Arrival, ...] = ()
    counted: bool = False
    tick: int = 10 * SECOND

    def as_platform(self) -> Platform:
        """Return the machines: one a node where only nodes are known."""
        return plain(len(self.nodes)) if self.platform is None else self.platform

    def without_shares(self) -> tuple[GpuNode, ...]:
        """Return the nodes for engines whose GPUs are devices: counted ones are none."""
        if not self.counted:
            return self.as_nodes()
        return tuple(replace(node, gpus=0, model="") for node in self.nodes)

    def as_nodes(self) -> tuple[GpuNode, ...]:
        """Return the nodes: one a machine where only machines are known."""
        if self.platform is None:
            return self.nodes
        return tuple(
            GpuNode(
                f"{index}-{host.name}",
                1000 * int(host.properties.get("core", host.cores)),
                _bytes(host.properties.get("memory", "4Gi")),
                0,
                "",
                110,
            )
            for index, host in enumerate(self.platform.compute)
        )


def _taint(text: str) -> str:
    taint = taint_of(text)
    if taint["key"] and taint["effect"] in EFFECTS:
        return ""
    return f"{text!r} is not a taint: write key=value:NoSchedule"


def _domains(given: Fields, key: str) -> dict[str, int]:
    inner = given.mapping(key)
    return {label: inner.whole(label, least=1) for label in inner.value}


def _driver(text: str) -> str:
    return "" if code.is_file(text) else not_one_of([*DRIVERS, "file.py:Class"])(text)


NODE: Final = Table(
    {
        "name": label(default="node"),
        "count": count(MOST_NODES),
        "cpu": quantity(scale=1000, required=True),
        "memory": quantity("Default: 64Gi.", default=64 << 30),
        "gpus": whole("", 0, MOST_CARDS, default=0),
        "model": label("Of its GPUs.", default="gpu"),
        "pods": whole("The most pods on it; default: 110.", 1, default=110),
        "labels": labels(),
        "domains": field(
            {"type": "object", "additionalProperties": json_schema.whole(1)},
            _domains,
            "Labels whose value so many nodes share: racks, blocks, NVLink domains.",
            default={},
        ),
        "taints": texts(
            item={"type": "string", "pattern": f"^[^=:][^=]*(=.*)?:({'|'.join(EFFECTS)})$"},
            check=_taint,
        ),
        "drivers": texts(item=any_of(json_schema.choice(DRIVERS), PYTHON), check=_driver),
    }
)
SHAPE: Final = Table(
    {
        "name": label(schema=json_schema.choice(shapes.names()), required=True),
        "nodes": whole("", 1, shapes.MOST_NODES, default=1),
        "seed": whole(default=0),
        "gpus": whole("", 1, MOST_CARDS, default=8),
    }
)
FORMS: Final = {
    "nodes": rows(NODE, least=1, always=False),
    "hosts": whole("So many machines for rigid jobs.", 1),
    "openb": file("The nodes of an openb trace: CSV."),
    "trace": file("The machines of a public trace, which is told by its content."),
    "platform": file("A SimGrid platform: XML."),
    "manifests": file("Nodes, ResourceSlices, DeviceClasses: YAML."),
    "shape": row(SHAPE, "A sample, as of `dralab generate`.", always=False),
    "snapshot": file("A file of `dralab snapshot`."),
    "recording": file("A file of `dralab record`: the nodes that came, changed and went."),
    "simulator": file("A configuration of k8s-cluster-simulator."),
}
MASTER: Final = label(
    "The host of the platform that runs no jobs.", default="master_host", needs="platform"
)
FLEET: Final = Table(FORMS | {"master": MASTER}, one_of=list(FORMS))


def read(given: Given, problems: InputProblems) -> ScenarioFleet:
    """Return the fleet of a scenario. InputError."""
    match given.form:
        case "nodes":
            fleet = _nodes(given.nodes)
        case "hosts":
            fleet = ScenarioFleet(platform=plain(given.hosts))
        case "openb":
            fleet = ScenarioFleet(nodes=tuple(openb_nodes(given.openb, problems)))
        case "trace":
            fleet = ScenarioFleet(nodes=traces.nodes(given.trace, problems))
        case "platform":
            fleet = ScenarioFleet(platform=simgrid_xml.read(given.platform, master=given.master))
        case "manifests":
            fleet = from_manifests(given.manifests, problems)
        case "shape":
            fleet = _from_shape(given.shape)
        case "snapshot":
            fleet = _from_snapshot(given.snapshot, problems)
        case _:
            # The nodes of a k8s-cluster-simulator configuration: objects with what they can
            # allocate.
            fleet = simulator_fleet(simulator_config.read(given.simulator))
    if not fleet.nodes and fleet.platform is None:
        raise given.error("", "has no node")
    return fleet


def _nodes(groups: Sequence[Given]) -> ScenarioFleet:
    nodes: list[GpuNode] = []
    for group in groups:
        if len(nodes) + group.count > MOST_NODES:
            raise group.error("count", f"there would be more than {MOST_NODES} nodes")
        known = {node.name for node in nodes}
        for index, full in enumerate(numbered(group.name, group.count)):
            if full in known:
                raise group.error("name", f"there are two nodes {full!r}")
            shared = {
                f"{label}={group.name}-{index // size}" for label, size in group.domains.items()
            }
            node = node_named(full, group)
            nodes.append(replace(node, labels=node.labels | shared))
    return ScenarioFleet(nodes=tuple(nodes))


def node_named(name: str, given: Given) -> GpuNode:
    """Return a node with what a scenario says of it."""
    return GpuNode(
        name,
        given.cpu,
        given.memory,
        given.gpus,
        given.model if given.gpus else "",
        given.pods,
        given.labels | {f"kubernetes.io/hostname={name}"},
        given.taints,
        given.drivers,
    )


def openb_nodes(path: Path, problems: InputProblems) -> Iterator[GpuNode]:
    """Yield the nodes of an openb trace, which counts memory in MiB."""
    for node in openb.read_nodes(path, problems=problems):
        yield replace(node, memory=node.memory << 20)


def _from_shape(shape: Given) -> ScenarioFleet:
    try:
        sample = shapes.sample(shape.name, nodes=shape.nodes, seed=shape.seed, gpus=shape.gpus)
    except ValueError as error:
        raise shape.error("name", str(error)) from None
    devices: dict[str, int] = {}
    models: dict[str, str] = {}
    for pool in sample.pools:
        units = {device.unit or device.name for device in pool.devices}
        if pool.node and not pool.name.endswith("nics"):
            devices[pool.node] = devices.get(pool.node, 0) + len(units)
            first = pool.devices[0].attributes if pool.devices else {}
            model = first.get("productName") or pool.attributes.get("model") or pool.driver
            models.setdefault(pool.node, str(model))
    return ScenarioFleet(
        nodes=tuple(
            GpuNode(
                node.name,
                int(1000 * parse_any(node.cpu)),
                int(parse_any(node.memory)),
                devices.get(node.name, 0),
                models.get(node.name, ""),
                110,
                frozenset(f"{key}={value}" for key, value in node.labels.items()),
            )
            for node in sample.nodes
        )
    )


def from_manifests(path: Path, problems: InputProblems) -> ScenarioFleet:
    """Return the nodes of manifests, with all objects that come with them. InputError."""
    loaded = load_manifests([str(path)])
    for problem in loaded.problems:
        problems.about(InputError(path, str(problem.message), line=problem.origin.line))
    nodes: dict[str, GpuNode] = {}
    for manifest in loaded.of_kind("Node"):
        line, title = manifest.origin.line, manifest.title
        if manifest.name in nodes:
            problems.about(InputError(path, "is given twice", line=line, where=title))
            continue
        try:
            nodes[manifest.name] = checked_node(manifest.object, path.name)
        except InputError as error:
            problems.about(error)
    return ScenarioFleet(
        nodes=tuple(nodes.values()), objects=tuple(m.object for m in loaded.objects)
    )


def is_snapshot_file(path: Path) -> bool:
    """Return whether a file is a snapshot; what cannot be read is none."""
    try:
        with open_file(path) as packed, gzip.GzipFile(fileobj=packed) as file:
            return is_snapshot(file.read(len(MARK)))
    except (EOFError, OSError, zlib.error):
        return False


def _from_snapshot(path: Path, problems: InputProblems) -> ScenarioFleet:
    """Read a cluster that `dralab snapshot` saved; the workload uses its priority classes."""
    try:
        saved = read_file(path)
    except SnapshotError as error:
        raise InputError(path, str(error).removeprefix(f"{path}: ")) from error
    nodes = []
    for item in saved:
        if item["kind"] == "Node":
            try:
                nodes.append(checked_node(item, path.name))
            except InputError as error:
                problems.about(error)
    return ScenarioFleet(
        nodes=tuple(nodes),
        objects=tuple(item for item in saved if item["kind"] in CAPACITY),
        running=tuple(item for item in saved if item["kind"] in RUNNING),
    )


def simulator_fleet(config: TickConfig) -> ScenarioFleet:
    """Return the nodes of a k8s-cluster-simulator configuration, and how long its ticks are."""
    nodes = tuple(checked_node(item, config.file.name) for item in config.nodes)
    return ScenarioFleet(nodes=nodes, objects=config.nodes, tick=config.tick * SECOND)


def checked_node(node: Mapping[str, Any], file: str) -> GpuNode:
    """Return a node from its object. InputError: a field is of the wrong kind."""
    try:
        return node_of(node, file)
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(file, f"a node has a field of the wrong kind: {error!r}") from None


def node_of(node: Mapping[str, Any], file: str) -> GpuNode:
    """Return a node from its object, by what it can allocate."""
    metadata, status = metadata_of(node), status_of(node)
    name = str(metadata.get("name", ""))
    amounts = status.get("allocatable") or status.get("capacity") or {}
    labels = {str(k): str(v) for k, v in (metadata.get("labels") or {}).items()}

    def amount(key: str, default: str) -> Any:
        try:
            return parse_any(amounts.get(key, default))
        except QuantityError:
            raise InputError(
                file, f"{amounts[key]!r} is not a quantity", where=f"Node {name}: {key}"
            ) from None

    gpus = sum(int(amount(key, "0")) for key in GPU_RESOURCES)
    model = next((labels[key] for key in MODEL_LABELS if key in labels), "gpu")
    return GpuNode(
        name,
        int(1000 * amount("cpu", "0")),
        int(amount("memory", "0")),
        gpus,
        model if gpus else "",
        int(amount("pods", "110")),
        frozenset(f"{key}={value}" for key, value in labels.items()),
        tuple(_taints(node)),
    )


def _taints(node: Mapping[str, Any]) -> Iterator[str]:
    spec = spec_of(node)
    for taint in spec.get("taints") or ():
        yield taint_text(taint)
    if spec.get("unschedulable"):
        yield "node.kubernetes.io/unschedulable=:NoSchedule"


def taint_of(text: str) -> dict[str, str]:
    """Return the taint of a text `key=value:Effect`."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}


def taint_text(taint: Mapping[str, Any]) -> str:
    """Return a taint as scenarios write it."""
    return f"{taint['key']}={taint.get('value') or ''}:{taint['effect']}"


def _bytes(text: str) -> int:
    try:
        return int(parse_any(text))
    except QuantityError:
        return 4 << 30

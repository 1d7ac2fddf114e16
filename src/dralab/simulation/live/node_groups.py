"""Node groups of cluster-autoscaler's provider kwok, which two ConfigMaps describe.

Source: `cloudprovider/kwok` of cluster-autoscaler 1.36 (`kwok_config.go`, `kwok_helpers.go`,
`kwok_nodegroups.go`). The provider takes Nodes of the templates alone; here a template also has
the ResourceSlices whose `nodeName` it is.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.api.yaml_documents import YamlError, documents
from dralab.kernel.durations import duration
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import annotations_of, labels_of, metadata_of, spec_of, status_of
from dralab.objects.taints import is_of_control_plane, taints_of
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CONFIG_MAPS, NODES, SLICES
from dralab.scenarios.errors import InputError
from dralab.scenarios.fields import Fields, FieldSource
from dralab.scenarios.tables import Given, Table, choice, field, flag, label, row
from dralab.simulation.engines.autoscaling.cluster_autoscaler import ClusterAutoscaler
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines, ScalingObserver
from dralab.simulation.lifecycle.model import Stage
from dralab.simulation.live.pool_source import FoundPools, PoolFinding, name_problem
from dralab.simulation.live.scaling_events import ClusterAutoscalerEvents
from dralab.simulation.scenario.fleet import ScenarioFleet, checked_node
from dralab.simulation.scenario.pools import POOL_LABEL, ClusterAutoscalerRules, ScenarioPool
from dralab.values.json_types import JsonDict, JsonObject

CONFIG_NAME: Final = "kwok-provider-config"
CONFIG_KEY: Final = "config"
TEMPLATES_KEY: Final = "templates"
GROUP: Final = "cluster-autoscaler.kwok.nodegroup/"
NAME, LEAST, MOST = (f"{GROUP}{each}" for each in ("name", "min-count", "max-count"))
MANAGED: Final = "kwok.x-k8s.io/node"
USUAL_MOST: Final = 200
# As many as `dralab up --nodes` runs.
MOST_NODES: Final = 5_000
TAINT: Final = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
# What a template says of its machines, beside the provider's annotations.
STARTUP, DEVICES, PRICE = (
    f"simulation.dralab.dev/{each}" for each in ("startup", "devices", "price")
)
NOT_ACTED_ON: Final = ("availableGPUTypes", "kwok")

ANY: Final = field({}, default=None)
CONFIG: Final = Table(
    {
        "apiVersion": choice(("v1alpha1",), default="v1alpha1"),
        "readNodesFrom": choice(("configmap", "cluster"), required=True),
        "nodegroups": row(
            Table(
                {"fromNodeLabelKey": label(), "fromNodeAnnotationKey": label()},
                one_of=["fromNodeLabelKey", "fromNodeAnnotationKey"],
            ),
            required=True,
        ),
        "nodes": row(Table({"skipTaint": flag(default=False), "gpuConfig": ANY})),
        "configmap": row(Table({"name": label(default=""), "key": label(default="")})),
        "availableGPUTypes": ANY,
        "kwok": ANY,
    }
)


class NodeGroups:
    """The node groups of a cluster, beside those `given` on the command line."""

    component = "cluster-autoscaler"
    finalizer = ""
    acts_on: Collection[str] = (CONFIG_MAPS.plural,)

    def __init__(
        self,
        manager: Manager,
        chance: Randomness,
        rules: ClusterAutoscalerRules,
        given: Sequence[ScenarioPool] = (),
    ) -> None:
        self.rules = rules
        self.given = given
        self._manager = manager
        self._chance = chance
        self._config_maps = manager.cache(CONFIG_MAPS)
        self._nodes = manager.cache(NODES)
        self._slices = manager.cache(SLICES)
        # The names of ConfigMaps that were read, and the annotations of each group's nodes.
        self._read = {CONFIG_NAME}
        self._annotations: dict[str, Mapping[str, str]] = {}

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a ConfigMap that describes groups has changed."""

        def look(old: JsonDict | None, new: JsonDict | None) -> None:
            if metadata_of(new or old or {})["name"] in self._read:
                changed()

        self._config_maps.subscribe(look)

    def autoscaler(self, machines: Machines, begin: int) -> Autoscaler:
        """Return cluster-autoscaler."""
        self._autoscaler = ClusterAutoscaler(machines, self.rules, self._chance.stream, begin)
        return self._autoscaler

    def definitions(self) -> Sequence[JsonDict]:
        """Return none: ConfigMaps are there."""
        return ()

    def obey(self, autoscaler: Autoscaler) -> None:
        """Do nothing: groups have no rules of their own."""

    def report(self, machines: Machines) -> None:
        """Do nothing: ConfigMaps have no status."""

    def observer(self) -> ScalingObserver:
        """Return who writes the events of cluster-autoscaler."""
        return ClusterAutoscalerEvents(self._manager, lambda: self._autoscaler)

    def dressed(self, node: JsonDict, pool: str) -> JsonDict:
        """Return a node as the provider makes it."""
        name = node["metadata"]["name"]
        annotations = {**self._annotations.get(pool, {}), MANAGED: "fake", NAME: pool}
        metadata = {**node["metadata"], "annotations": annotations}
        spec = {**spec_of(node), "providerID": f"kwok:{name}"}
        return {**node, "metadata": metadata, "spec": spec}

    # --- reading ------------------------------------------------------------------------------

    def read(self) -> FoundPools:
        """Return the groups of the first configuration: that of kube-system, then by namespace."""
        found = [item for item in self._config_maps if metadata_of(item)["name"] == CONFIG_NAME]
        if not found:
            return FoundPools(pools=self.given)
        held = min(found, key=lambda item: _rank(metadata_of(item)["namespace"]))
        findings: list[PoolFinding] = []
        try:
            config = _config_of(held)
            templates, about = self._templates(config, held)
            findings += (_finding(held, text) for text in _ignored(config))
            groups = _Groups(config, about, findings)
            groups.add(templates)
        except InputError as error:
            place = "" if error.file == _place(held) else error.file
            parts = (place, error.where, error.problem)
            text = ": ".join(part for part in parts if part)
            return FoundPools(pools=None, findings=(_finding(held, text, is_error=True),))
        self._annotations = groups.annotations
        return FoundPools(pools=[*groups.pools.values(), *self.given], findings=findings)

    def _templates(self, config: Given, held: JsonDict) -> tuple[list[JsonDict], JsonDict]:
        """Return the objects of templates, and the ConfigMap that has them."""
        if config.readNodesFrom == "cluster":
            live = [node for node in self._nodes if POOL_LABEL not in labels_of(node)]
            names = {metadata_of(node)["name"] for node in live}
            slices = [item for item in self._slices if spec_of(item).get("nodeName") in names]
            return [{"kind": "Node", **node} for node in live] + [
                {"kind": "ResourceSlice", **item} for item in slices
            ], held
        name, namespace = config.configmap.name, metadata_of(held)["namespace"]
        if not name:
            raise config.configmap.error("name", "must be given, where readNodesFrom is configmap")
        self._read = {CONFIG_NAME, name}
        for item in self._config_maps.namespace(namespace):
            if metadata_of(item)["name"] == name:
                return list(_objects_of(item)), item
        problem = f"there is no ConfigMap {name} in {namespace}"
        raise config.configmap.error("name", problem)


class _Groups:
    """The groups that templates make."""

    def __init__(self, config: Given, about: JsonDict, findings: list[PoolFinding]) -> None:
        self.config = config
        self.about = about
        self.findings = findings
        self.pools: dict[str, ScenarioPool] = {}
        self.annotations: dict[str, Mapping[str, str]] = {}

    def add(self, templates: Iterable[JsonDict]) -> None:
        """Make a group of each template. InputError."""
        nodes: list[JsonDict] = []
        slices: dict[str, list[JsonDict]] = {}
        shared: list[JsonDict] = []
        for item in templates:
            if item.get("kind") == "Node":
                nodes.append(item)
            elif item.get("kind") == "ResourceSlice" and spec_of(item).get("nodeName"):
                slices.setdefault(spec_of(item)["nodeName"], []).append(item)
            elif item.get("kind") in {"ResourceSlice", "DeviceClass"}:
                shared.append(item)
            else:
                self._note(f"templates: {_title(item)} is not acted on")
        names = {str(metadata_of(node).get("name")) for node in nodes}
        for name in sorted(slices.keys() - names):
            first = _title(slices[name][0])
            self._note(f"templates: {first} names node {name}, which is not a template")
        for node in nodes:
            name = str(metadata_of(node).get("name"))
            self._add(node, [*slices.get(name, ()), *shared])

    def _add(self, node: JsonDict, others: Sequence[JsonDict]) -> None:
        title, annotations = _title(node), annotations_of(node)
        groups = self.config.nodegroups
        key = groups[groups.form]
        by_label = groups.form == "fromNodeLabelKey"
        value = (labels_of(node) if by_label else annotations).get(key)
        if not value:
            sort = "label" if by_label else "annotation"
            self._note(f"templates: {title} is in no group: it has no {sort} {key}")
            return
        name = annotations.get(NAME) or value
        if name in self.pools:
            return
        if problem := name_problem(name):
            raise self._error(title, f"the group {name!r} cannot name nodes: {problem}")
        least, most = (
            self._number(node, key, usual) for key, usual in ((LEAST, 0), (MOST, USUAL_MOST))
        )
        if most > MOST_NODES:
            raise self._error(
                title, f"{MOST} is {most}, and a group has at most {MOST_NODES} nodes"
            )
        if least > most:
            raise self._error(title, f"{LEAST} is {least}, and {MOST} only {most}")
        template = _template(node, taint=not self.config.nodes.skipTaint)
        fleet = ScenarioFleet(
            nodes=(checked_node(template, _place(self.about)),), objects=(template, *others)
        )
        self.annotations[name] = annotations
        self.pools[name] = ScenarioPool(
            name=name,
            fleet=fleet,
            least=least,
            most=most,
            price=float(self._number(node, PRICE, 0, read=float)),
            startup=Stage(name="startup", delay=self._number(node, STARTUP, 0, read=duration)),
            devices=Stage(name="devices", delay=self._number(node, DEVICES, 0, read=duration)),
        )

    def _number(
        self, node: JsonDict, key: str, usual: int, *, read: Callable[[str], Any] = int
    ) -> Any:
        text = annotations_of(node).get(key)
        try:
            found = usual if text is None else read(text)
        except ValueError as error:
            what = "a whole number" if read is int else "a number" if read is float else str(error)
            raise self._error(_title(node), f"{key} is {text!r}: give {what}") from None
        if not (0 <= found < math.inf):
            raise self._error(_title(node), f"{key} is {text!r}: give a number from 0 on")
        return found

    def _error(self, where: str, problem: str) -> InputError:
        return InputError(_place(self.about), problem, where=f"templates: {where}")

    def _note(self, text: str) -> None:
        self.findings.append(_finding(self.about, text))


def _rank(namespace: str) -> tuple[bool, str]:
    return namespace != "kube-system", namespace


def _place(config_map: JsonDict) -> str:
    metadata = metadata_of(config_map)
    return f"ConfigMap {metadata['namespace']}/{metadata['name']}"


def _title(item: JsonObject) -> str:
    return f"{item.get('kind')} {metadata_of(item).get('name')}"


def _finding(config_map: JsonDict, text: str, *, is_error: bool = False) -> PoolFinding:
    return PoolFinding(
        about=config_map, kind="ConfigMap", api_version="v1", message=text, is_error=is_error
    )


def _config_of(held: JsonDict) -> Given:
    text = (held.get("data") or {}).get(CONFIG_KEY)
    if not text:
        raise InputError(_place(held), "must be given", where=f"data.{CONFIG_KEY}")
    parsed = _parsed(held, text)
    if len(parsed) != 1:
        raise InputError(_place(held), "must hold one mapping", where=f"data.{CONFIG_KEY}")
    return CONFIG.read(Fields(FieldSource(Path(_place(held))), "", parsed[0]))


def _parsed(held: JsonDict, text: str) -> list[Any]:
    try:
        return [each.value for each in documents(text.encode()) if each.value is not None]
    except YamlError as error:
        raise InputError(_place(held), error.message, line=error.line or None) from None


def _objects_of(held: JsonDict) -> Iterator[JsonDict]:
    """Yield the objects of templates. InputError."""
    text = (held.get("data") or {}).get(TEMPLATES_KEY)
    if not text:
        raise InputError(_place(held), "must be given", where=f"data.{TEMPLATES_KEY}")
    for each in _parsed(held, text):
        for item in each["items"] if isinstance(each, dict) and "items" in each else [each]:
            if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
                raise InputError(_place(held), "must hold objects", where=f"data.{TEMPLATES_KEY}")
            yield item


def _template(node: JsonDict, *, taint: bool) -> JsonDict:
    """Return what new nodes of a group are like."""
    kept = [
        each
        for each in taints_of(node)
        if each["key"] != TAINT["key"] and not is_of_control_plane(each["key"])
    ]
    spec = {"taints": [*kept, TAINT] if taint else kept}
    status = status_of(node)
    amounts = status.get("allocatable") or status.get("capacity") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": metadata_of(node)["name"], "labels": dict(labels_of(node))},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": status.get("capacity") or amounts},
    }


def _ignored(config: Given) -> Iterator[str]:
    """Yield what of a configuration is not acted on."""
    given = {**config.values, "nodes.gpuConfig": config.nodes.gpuConfig}
    for name in ("nodes.gpuConfig", *NOT_ACTED_ON):
        if given[name]:
            yield f"{name} is not acted on"

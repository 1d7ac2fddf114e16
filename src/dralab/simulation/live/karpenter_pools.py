"""NodePools of Karpenter, and the KWOKNodeClasses of its provider kwok, as objects of a cluster.

Source: Karpenter of August 2026 (`karpenter.sh/v1`, `kwok/cloudprovider`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dralab.api.status import ignoring
from dralab.kernel.durations import duration
from dralab.kernel.randomness import Randomness
from dralab.objects.conditions import with_condition
from dralab.objects.metadata import NamespacedName, labels_of, metadata_of, spec_of, status_of
from dralab.objects.requests import amount_of
from dralab.runtime.client import Resource, amend
from dralab.runtime.manager import Manager
from dralab.scenarios.errors import InputError
from dralab.scenarios.fields import FieldSource
from dralab.simulation.engines.autoscaling.karpenter import Karpenter
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines, ScalingObserver
from dralab.simulation.live.pool_source import FoundPools, PoolFinding, name_problem
from dralab.simulation.live.scaling_events import KarpenterEvents
from dralab.simulation.scenario.node_pools import NodePoolTemplate, template_of
from dralab.simulation.scenario.pools import KarpenterRules, ScenarioPool, pools_of
from dralab.values.json_types import JsonDict

NODE_POOLS: Final = Resource("karpenter.sh", "v1", "nodepools", namespaced=False)
NODE_CLASSES: Final = Resource("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", namespaced=False)
CLASS_KIND: Final = "KWOKNodeClass"
DELAY: Final = "nodeRegistrationDelay"
# Who looks at nodes sees that Karpenter has finished with them.
STATES: Final = {f"karpenter.sh/{each}": "true" for each in ("registered", "initialized")}
MANAGED: Final = "kwok.x-k8s.io/node"
COLUMNS: Final = (
    ("NodeClass", ".spec.template.spec.nodeClassRef.name", "string", 0),
    ("Nodes", ".status.nodes", "string", 0),
    ("Ready", '.status.conditions[?(@.type=="Ready")].status', "string", 0),
    ("Age", ".metadata.creationTimestamp", "date", 0),
    ("Weight", ".spec.weight", "integer", 1),
    ("CPU", ".status.resources.cpu", "string", 1),
    ("Memory", ".status.resources.memory", "string", 1),
)


class KarpenterPools:
    """The NodePools of a cluster; `types` are the instance types that they may have."""

    component = "karpenter"
    acts_on: Collection[str] = tuple(
        f"{each.group}/{each.plural}" for each in (NODE_POOLS, NODE_CLASSES)
    )

    def __init__(
        self,
        manager: Manager,
        chance: Randomness,
        rules: KarpenterRules,
        types: Sequence[ScenarioPool],
    ) -> None:
        del chance
        self.rules = replace(rules, node_pools=())
        self.types = types
        self._manager = manager
        self._pools = manager.cache(NODE_POOLS)
        self._classes = manager.cache(NODE_CLASSES)
        self._templates: list[NodePoolTemplate] = []
        # What each NodePool lacks, by the type of the condition that says so.
        self._problems: dict[str, tuple[str, str]] = {}

    def definitions(self) -> Sequence[JsonDict]:
        """Return the definitions of NodePools and of their classes."""
        return [
            _definition(NODE_POOLS, "NodePool", "nodepool", COLUMNS),
            _definition(NODE_CLASSES, CLASS_KIND, "kwoknodeclass", ()),
        ]

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the specification of a NodePool or of a class has changed."""

        def look(old: JsonDict | None, new: JsonDict | None) -> None:
            if old is None or new is None or spec_of(old) != spec_of(new):
                changed()

        self._pools.subscribe(look)
        self._classes.subscribe(look)

    def autoscaler(self, machines: Machines, begin: int) -> Autoscaler:
        """Return Karpenter."""
        return Karpenter(machines, self.rules, begin)

    def observer(self) -> ScalingObserver:
        """Return who writes the events of Karpenter."""
        return KarpenterEvents(self._manager)

    def obey(self, autoscaler: Autoscaler) -> None:
        """Let Karpenter know of NodePools; the nodes of one that was deleted go."""
        assert isinstance(autoscaler, Karpenter)  # noqa: S101 - it is this one's
        machines = autoscaler.machines
        autoscaler.set_node_pools([each.rules for each in self._templates])
        there = {metadata_of(each)["name"] for each in self._pools}
        for machine in list(machines.here.values()):
            if machines.pools[machine.pool].group not in there and not machine.leaving:
                machines.drain(machine, "its NodePool is deleted")

    def dressed(self, node: JsonDict, pool: str) -> JsonDict:
        """Return a node as the provider makes it."""
        del pool
        metadata = node["metadata"]
        return {
            **node,
            "metadata": {
                **metadata,
                "labels": {**labels_of(node), **STATES},
                "annotations": {MANAGED: "fake"},
            },
            "spec": {**spec_of(node), "providerID": f"kwok://{metadata['name']}"},
        }

    # --- reading ------------------------------------------------------------------------------

    def read(self) -> FoundPools:
        """Return the instance types that NodePools allow."""
        self._templates, self._problems = [], {}
        pools: list[ScenarioPool] = []
        findings: list[PoolFinding] = []
        for body in sorted(self._pools, key=lambda each: str(metadata_of(each)["name"])):
            name = str(metadata_of(body)["name"])
            try:
                delay = self._delay(body)
                source = FieldSource(Path(f"NodePool {name}"))
                template, ignored = template_of(name, body, source)
                found = _with_delay(pools_of(template, self.types), delay)
                self._check(found)
            except InputError as error:
                text = ": ".join(part for part in (error.where, error.problem) if part)
                sort = "NodeClassReady" if error.where == CLASS_KIND else "ValidationSucceeded"
                self._problems[name] = sort, text
                findings.append(_finding(body, text, is_error=True))
                continue
            findings += (_finding(body, f"{each} is not acted on") for each in ignored)
            if not found:
                text = "NodePool requirements filtered out all compatible available instance types"
                findings.append(_finding(body, text, is_error=True))
            self._templates.append(template)
            pools += found
        return FoundPools(pools=pools, findings=findings)

    def _delay(self, pool: JsonDict) -> int:
        """Return how long after its request a node registers, as the class of a NodePool says."""
        template = spec_of(pool).get("template") or {}
        ref = (template.get("spec") or {}).get("nodeClassRef") or {}
        name, kind = str(ref.get("name") or ""), ref.get("kind")
        if kind != CLASS_KIND or ref.get("group") != NODE_CLASSES.group:
            problem = f"nodeClassRef must be of {NODE_CLASSES.group} {CLASS_KIND}"
            problem += f", and is of {ref.get('group')} {kind}"
            raise InputError(name, problem, where=CLASS_KIND)
        found = self._classes.get(NamespacedName("", name))
        if found is None:
            raise InputError(name, f"{name!r} does not exist", where=CLASS_KIND)
        try:
            return duration(spec_of(found).get(DELAY) or 0)
        except ValueError as error:
            raise InputError(name, f"{name} {DELAY}: {error}", where=CLASS_KIND) from None

    def _check(self, pools: Sequence[ScenarioPool]) -> None:
        for each in pools:
            if problem := name_problem(each.name):
                raise InputError(each.name, f"{each.name!r} cannot name nodes: {problem}")

    # --- status -------------------------------------------------------------------------------

    def report(self, machines: Machines) -> None:
        """Write what each NodePool has, and whether it is ready."""
        counts: dict[str, Counter[str]] = {}
        for machine in machines.here.values():
            pool = machines.pools[machine.pool]
            if machine.up is not None:
                counts.setdefault(pool.group, Counter()).update(pool.amounts)
        for body in self._pools:
            self._write(body, counts.get(metadata_of(body)["name"], Counter()))

    def _write(self, body: JsonDict, counts: Counter[str]) -> None:
        now = self._manager.now()
        name = metadata_of(body)["name"]
        conditions = list(self._conditions(name))
        resources = {each: amount_of(each, units) for each, units in sorted(counts.items())}

        def change(latest: JsonDict) -> bool:
            held = status_of(latest)
            wanted = {**held, "nodes": counts["nodes"], "resources": resources}
            listed = held.get("conditions") or []
            for each in conditions:
                listed = with_condition(listed, each, now=now)
            wanted["conditions"] = listed
            latest["status"] = wanted
            return wanted != held

        with ignoring("NotFound"):
            amend(self._manager.client, NODE_POOLS, body, change, subresource="status")

    def _conditions(self, name: str) -> Iterator[JsonDict]:
        wrong, text = self._problems.get(name, ("", ""))
        for sort in ("ValidationSucceeded", "NodeClassReady", "Ready"):
            bad = bool(wrong) and sort in {wrong, "Ready"}
            yield {
                "type": sort,
                "status": "False" if bad else "True",
                "reason": "NotReady" if bad else sort,
                "message": text if bad else "",
            }


def _with_delay(pools: Sequence[ScenarioPool], delay: int) -> list[ScenarioPool]:
    return [
        replace(pool, startup=replace(pool.startup, delay=pool.startup.delay + delay))
        for pool in pools
    ]


def _finding(body: JsonDict, text: str, *, is_error: bool = False) -> PoolFinding:
    return PoolFinding(
        about=body, kind="NodePool", api_version="karpenter.sh/v1", message=text, is_error=is_error
    )


def _definition(
    resource: Resource, kind: str, singular: str, columns: Sequence[tuple[str, str, str, int]]
) -> JsonDict:
    """Return a definition that takes any field; problems are written to the status."""
    free: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": free},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "jsonPath": path, "type": sort, "priority": priority}
            for name, path, sort, priority in columns
        ],
    }
    names = {"kind": kind, "plural": resource.plural, "singular": singular}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {**names, "categories": ["karpenter"]},
            "scope": "Cluster",
            "versions": [version],
        },
    }

"""NodePools of Karpenter, and the KWOKNodeClasses of its provider kwok, as objects of a cluster.

Source: Karpenter of August 2026 (`karpenter.sh/v1`, `kwok/cloudprovider`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dralab.api.status import ignoring
from dralab.kernel.durations import duration
from dralab.kernel.randomness import Randomness
from dralab.objects.conditions import is_true
from dralab.objects.metadata import NamespacedName, labels_of, metadata_of, spec_of, status_of
from dralab.objects.requests import amount_of
from dralab.runtime.client import amend
from dralab.runtime.manager import Manager
from dralab.scenarios.errors import InputError
from dralab.scenarios.fields import FieldSource
from dralab.simulation.engines.autoscaling.karpenter import Karpenter
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines, ScalingObserver
from dralab.simulation.live.karpenter_objects import (
    CLASS_KIND,
    GROUP,
    NODE_CLAIMS,
    NODE_CLASSES,
    NODE_POOLS,
    awaiting,
    condition,
    definitions,
    updated,
)
from dralab.simulation.live.node_claims import (
    DELETED,
    FINALIZER,
    MANAGED,
    NodeClaims,
    provider_id,
)
from dralab.simulation.live.pool_source import FoundPools, PoolFinding, name_problem
from dralab.simulation.live.scaling_events import KarpenterEvents
from dralab.simulation.scenario.node_pools import NodePoolTemplate, template_of
from dralab.simulation.scenario.pools import KarpenterRules, ScenarioPool, pools_of
from dralab.values.json_types import JsonDict

HEALTHY: Final = "NodeRegistrationHealthy"
DELAY: Final = "nodeRegistrationDelay"
# Who looks at nodes sees that Karpenter has finished with them.
STATES: Final = {f"{GROUP}/{each}": "true" for each in ("registered", "initialized")}
CLASS_LABEL: Final = f"{NODE_CLASSES.group}/{CLASS_KIND.lower()}"
# What a NodePool is told to have, whatever its nodes offer.
COUNTED: Final = ("cpu", "ephemeral-storage", "memory", "nodes", "pods")


class KarpenterPools:
    """The NodePools of a cluster; `types` are the instance types that they may have."""

    component = "karpenter"
    finalizer = FINALIZER
    acts_on: Collection[str] = tuple(
        f"{each.group}/{each.plural}" for each in (NODE_POOLS, NODE_CLAIMS, NODE_CLASSES)
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
        # What each NodePool lacks, as a condition.
        self._problems: dict[str, JsonDict] = {}
        self._queue = manager.queue("autoscaler/nodepools", self._write)
        self._claims = NodeClaims(manager, self._pools, self._queue.add)
        self._karpenter: Karpenter | None = None

    def definitions(self) -> Sequence[JsonDict]:
        """Return the definitions of NodePools, NodeClaims and classes."""
        return definitions()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the specification of a NodePool or of a class has changed."""

        def look(old: JsonDict | None, new: JsonDict | None) -> None:
            if old is None or new is None or spec_of(old) != spec_of(new):
                changed()

        self._pools.subscribe(look)
        self._classes.subscribe(look)

    def autoscaler(self, machines: Machines, begin: int) -> Autoscaler:
        """Return Karpenter."""
        self._karpenter = Karpenter(machines, self.rules, begin)
        return self._karpenter

    def observer(self) -> ScalingObserver:
        """Return who writes the events of Karpenter."""
        return KarpenterEvents(self._manager, self._claims)

    def obey(self, autoscaler: Autoscaler) -> None:
        """Let Karpenter know of NodePools; nodes of one that was deleted go, of others drift."""
        assert isinstance(autoscaler, Karpenter)  # noqa: S101 - it is this one's
        machines = autoscaler.machines
        autoscaler.set_node_pools([each.rules for each in self._templates])
        self._claims.obey(autoscaler, self._templates)
        there = {metadata_of(each)["name"] for each in self._pools}
        for machine in list(machines.here.values()):
            if machines.pools[machine.pool].group not in there and not machine.leaving:
                machines.drain(machine, DELETED)

    def dressed(self, node: JsonDict, pool: str) -> JsonDict:
        """Return a node as the provider makes it."""
        del pool
        metadata = node["metadata"]
        name = metadata["name"]
        return {
            **node,
            "metadata": {
                **metadata,
                "labels": {**labels_of(node), **STATES},
                "annotations": dict(MANAGED),
                "finalizers": [FINALIZER],
                "ownerReferences": self._claims.owners(name),
            },
            "spec": {**spec_of(node), "providerID": provider_id(name)},
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
                labels = {**template.labels, CLASS_LABEL: self._class_of(body)["name"]}
                template = replace(template, labels=labels)
                found = _with_delay(pools_of(template, self.types), delay)
                self._check(found)
            except InputError as error:
                text = ": ".join(part for part in (error.where, error.problem) if part)
                self._problems[name] = (
                    condition("NodeClassReady", "False", "NodeClassNotFound", text)
                    if error.where == CLASS_KIND
                    else condition("ValidationSucceeded", "False", "NodePoolValidationFailed", text)
                )
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
        ref = self._class_of(pool)
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

    def _class_of(self, pool: JsonDict) -> JsonDict:
        template = spec_of(pool).get("template") or {}
        return (template.get("spec") or {}).get("nodeClassRef") or {}

    def _check(self, pools: Sequence[ScenarioPool]) -> None:
        for each in pools:
            if problem := name_problem(each.name):
                raise InputError(each.name, f"{each.name!r} cannot name nodes: {problem}")

    # --- status -------------------------------------------------------------------------------

    def report(self, machines: Machines) -> None:
        """Write what each NodePool has, and whether it is ready."""
        del machines
        for body in self._pools:
            self._queue.add(metadata_of(body)["name"])

    def _write(self, name: str) -> int | None:
        """Write the status of a NodePool."""
        body, karpenter = self._pools.get(NamespacedName("", name)), self._karpenter
        if body is None or karpenter is None:
            return None
        counts = Counter(dict.fromkeys(COUNTED, 0))
        machines = karpenter.machines
        registered = False
        for machine in machines.here.values():
            pool = machines.pools[machine.pool]
            if pool.group == name:
                registered |= machine.up is not None
                counts.update({} if karpenter.is_going(machine) else pool.amounts)
        problem = self._problems.get(name)
        conditions = [
            problem if problem and problem["type"] == sort else condition(sort)
            for sort in ("ValidationSucceeded", "NodeClassReady")
        ]

        def change(latest: JsonDict) -> bool:
            healthy = registered or is_true(latest, HEALTHY)
            wanted = (*conditions, condition(HEALTHY) if healthy else awaiting(HEALTHY))
            held = status_of(latest)
            latest["status"] = {
                **held,
                "nodes": counts["nodes"],
                "resources": {each: amount_of(each, counts[each]) for each in sorted(counts)},
                "conditions": updated(latest, wanted, len(conditions), self._manager.now()),
            }
            return bool(latest["status"] != held)

        with ignoring("NotFound"):
            amend(self._manager.client, NODE_POOLS, body, change, subresource="status")
        return None


def _with_delay(pools: Sequence[ScenarioPool], delay: int) -> list[ScenarioPool]:
    return [
        replace(pool, startup=replace(pool.startup, delay=pool.startup.delay + delay))
        for pool in pools
    ]


def _finding(body: JsonDict, text: str, *, is_error: bool = False) -> PoolFinding:
    return PoolFinding(
        about=body, kind="NodePool", api_version="karpenter.sh/v1", message=text, is_error=is_error
    )

"""Options of `dralab up` for its autoscaler: a name, and the file of its rules and pools."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dralab.drivers.catalog import DRIVERS
from dralab.kernel.randomness import Randomness
from dralab.runtime.manager import Manager
from dralab.scenarios.errors import InputError, InputProblems
from dralab.scenarios.fields import load
from dralab.scenarios.tables import Table
from dralab.simulation.engines.fleet_nodes import (
    driver_classes,
    gpu_drivers,
    node_spec,
    slices_of,
)
from dralab.simulation.live.karpenter_pools import KarpenterPools
from dralab.simulation.live.node_groups import NodeGroups
from dralab.simulation.live.pool_source import PoolSource
from dralab.simulation.scenario import pools
from dralab.simulation.scenario.pools import (
    ClusterAutoscalerRules,
    KarpenterRules,
    Rules,
    ScenarioPool,
)
from dralab.simulation.scenario.scenario import SCENARIO
from dralab.values.json_types import JsonDict

FILE: Final = Table(
    {
        "pools": SCENARIO.fields["pools"],
        "autoscaler": replace(SCENARIO.fields["autoscaler"], needs=()),
    }
)


def source_of(name: str, file: Path | None) -> Callable[[Manager, Randomness], PoolSource]:
    """Return what reads the pools of an autoscaler from a cluster. InputError."""
    rules, given = _settings(name, file)
    if isinstance(rules, ClusterAutoscalerRules):
        return partial(NodeGroups, rules=rules, given=given)
    from dralab.simulation.live.instance_types import usual_types

    return partial(KarpenterPools, rules=rules, types=given or usual_types())


def _settings(name: str, file: Path | None) -> tuple[Rules, Sequence[ScenarioPool]]:
    """Return the rules of an autoscaler, and the pools of a file. InputError."""
    kind = pools.FORMS[name][1]
    if file is None:
        return kind(), ()
    given = FILE.read(load(file))
    rules, found = pools.autoscaled(given, pools.read(given.pools, InputProblems()))
    if given.autoscaler is None:
        rules = kind()
    if not isinstance(rules, kind):
        raise given.error("autoscaler", f"is not {name}, which runs")
    if isinstance(rules, KarpenterRules) and rules.node_pools != KarpenterRules().node_pools:
        raise given.error("autoscaler", "what NodePools say is read from those of the cluster")
    return rules, [_with_manifests(pool, file) for pool in found]


def _with_manifests(pool: ScenarioPool, file: Path) -> ScenarioPool:
    """Return a pool whose node, devices and classes are all objects. InputError."""
    (node,) = pool.fleet.nodes
    if pool.fleet.objects:
        return pool
    if others := [each for each in node.drivers if each not in DRIVERS]:
        problem = f"the driver {others[0]} is code of yours, which nodes of a pool cannot run here"
        raise InputError(file, problem, where=f"pools: {pool.name}")
    spec = node_spec(node)
    body: JsonDict = spec.node() | {
        "status": {"allocatable": spec.amounts(), "capacity": spec.amounts()}
    }
    drivers = [*gpu_drivers(node), *(DRIVERS[each](node.name) for each in node.drivers)]
    slices = [
        {"kind": "ResourceSlice", **item} for driver in drivers for _, item in slices_of(driver)
    ]
    objects = (body, *slices, *driver_classes(drivers))
    return replace(pool, fleet=replace(pool.fleet, objects=objects))

"""`pools:` and `autoscaler:` of a scenario: nodes that can be added, and who asks for them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dralab.capacity.autoscaling.cluster_autoscaler import EXPANDERS
from dralab.capacity.autoscaling.node_pools import (
    CONSOLIDATIONS,
    DisruptionBudget,
    NodePoolRules,
)
from dralab.fleet import rendering, shapes
from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputProblems
from dralab.scenarios.tables import (
    Given,
    InputField,
    Table,
    choice,
    duration,
    either,
    file,
    label,
    not_one_of,
    number,
    probability,
    row,
    texts,
    whole,
)
from dralab.simulation.lifecycle.model import Stage
from dralab.simulation.scenario import fleet, node_pools
from dralab.simulation.scenario.fleet import ScenarioFleet
from dralab.simulation.scenario.node_pools import NodePoolTemplate
from dralab.values import json_schema
from dralab.values.json_types import JsonDict

CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"
# The label of every node of a pool.
BUDGET: Final = r"^[0-9]{1,6}%?$"
POOL_LABEL: Final = "simulation.dralab.dev/pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMarket:
    """The machines are taken back: after a time around `every`, with `notice` before."""

    every: int
    notice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioPool:
    """Nodes that can be added, like the one of `fleet`; `price` is that of one for an hour.

    A node is there after `startup`, its devices so long after it; with the probability `failure`
    it never comes. A node has its `startup_taints` until it is ready. `group` is the NodePool of
    Karpenter that asks for it.
    """

    name: str
    fleet: ScenarioFleet
    least: int = 0
    most: int = 100
    price: float = 0.0
    priority: int = 0
    startup: Stage = field(default_factory=lambda: Stage(name="startup"))
    devices: Stage = field(default_factory=lambda: Stage(name="devices"))
    failure: float = 0.0
    spot: SpotMarket | None = None
    group: str = ""
    startup_taints: tuple[JsonDict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAutoscalerRules:
    """The flags of cluster-autoscaler; durations in nanoseconds."""

    expander: Sequence[str] = ("least-waste",)
    scan: int = 10 * SECOND
    unneeded: int = 600 * SECOND
    threshold: float = 0.5
    delay_after_add: int = 600 * SECOND
    provision_timeout: int = 900 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterRules:
    """How Karpenter collects pods, and what its NodePools say; durations in nanoseconds.

    `ignored` names what of the NodePools is not acted on.
    """

    batch_idle: int = SECOND
    batch_max: int = 10 * SECOND
    provision_timeout: int = 900 * SECOND
    node_pools: tuple[NodePoolRules, ...] = (NodePoolRules(),)
    ignored: tuple[str, ...] = ()


def _delays(about: str) -> InputField:
    stage = Table({"delay": duration(default=0), "jitter": duration(default=0)})
    return either(duration(), row(stage), about=about, default=0)


_DEFAULTS: Final = ClusterAutoscalerRules()
SPOT: Final = Table(
    {
        "every": duration("How long a machine stays, on the average.", required=True),
        "notice": duration("Between the notice and the end; default: 2m.", default=120 * SECOND),
    }
)
POOL: Final = Table(
    {
        "name": label("Of the pool; its nodes are numbered.", required=True),
        "cpu": replace(fleet.NODE.fields["cpu"], required=False),
    }
    | {
        key: replace(rule, needs="cpu")
        for key, rule in fleet.NODE.fields.items()
        if key not in {"name", "count", "domains", "cpu"}
    }
    | {
        "shape": label(
            "A shape of the catalogue, with its devices and their partitions.",
            schema=json_schema.choice(shapes.names()),
        ).checked(not_one_of(shapes.names())),
        "manifests": file("One Node, its ResourceSlices, DeviceClasses: YAML."),
        "min": whole("There are always so many; default: 0.", default=0),
        "max": whole("Default: 100.", 1, default=100),
        "price": number("Of a node for an hour, in any unit; default: 0.", default=0.0),
        "priority": whole("For the expander `priority`, or Karpenter's weight.", default=0),
        "startup": _delays("Until a node that was asked for is there."),
        "devices": _delays("Until its drivers have published its devices, after that."),
        "failure": probability("The probability that a node never comes.", default=0.0),
        "spot": row(SPOT, "The machines can be taken back.", always=False),
    },
    one_of=["cpu", "shape", "manifests"],
)
FLAGS: Final = Table(
    {
        "expander": texts(
            "How a pool is chosen; several: one filters what the other leaves.",
            item=json_schema.choice(EXPANDERS),
            least=1,
            check=not_one_of(EXPANDERS),
            default=_DEFAULTS.expander,
        ).checked(lambda names: "" if names else "must name an expander"),
        "scan": duration("Default: 10s.", default=_DEFAULTS.scan),
        "unneeded": duration(
            "How long a node is unneeded before it goes; default: 10m.",
            default=_DEFAULTS.unneeded,
        ),
        "threshold": probability(
            "A node of which more is in use is needed; default: 0.5.", default=_DEFAULTS.threshold
        ),
        "delay_after_add": duration(
            "No node goes so long after one came; default: 10m.",
            default=_DEFAULTS.delay_after_add,
        ),
        "provision_timeout": duration(
            "A node that has not come by then has failed; default: 15m.",
            default=_DEFAULTS.provision_timeout,
        ),
    }
)  # fmt: skip
_KARPENTER: Final = KarpenterRules()
_NODE_POOL: Final = NodePoolRules()
# What NodePools say where there are some.
OF_NODE_POOLS: Final = ("consolidation", "consolidate_after", "budget")
NODE_POOL: Final = Table(
    {
        "node_pools": file("NodePools of karpenter.sh/v1, which the pools are instance types of."),
        "batch_idle": duration(
            "It waits for more pods so long after the last one; default: 1s.",
            default=_KARPENTER.batch_idle,
        ),
        "batch_max": duration("And so long in all; default: 10s.", default=_KARPENTER.batch_max),
        "consolidation": choice(
            CONSOLIDATIONS, "Which nodes are given up.", default=_NODE_POOL.consolidation
        ),
        "consolidate_after": duration(
            "After pods came to a node or left it, it stays so long; default: 0.",
            default=_NODE_POOL.consolidate_after,
        ),
        "budget": label(
            "How many nodes are disrupted at a time: a number, or a part; default: 10%.",
            schema={"type": ["string", "integer"], "pattern": BUDGET, "minimum": 0},
            default=_NODE_POOL.budgets[0].nodes,
        ).checked(
            lambda text: (
                "" if re.match(BUDGET, text) else f"{text!r} is not a number, or a part: 10%"
            )
        ),
        "provision_timeout": duration(
            "A node that has not come by then has failed; default: 15m.",
            default=_KARPENTER.provision_timeout,
        ),
    }
)
Rules = ClusterAutoscalerRules | KarpenterRules
FORMS: Final[Mapping[str, tuple[Table, type[Rules]]]] = {
    CLUSTER_AUTOSCALER: (FLAGS, ClusterAutoscalerRules),
    KARPENTER: (NODE_POOL, KarpenterRules),
}
AUTOSCALER: Final = Table(
    {name: row(table, always=False) for name, (table, _) in FORMS.items()}, one_of=list(FORMS)
)
AUTOSCALERS: Final = tuple(FORMS)


def read(given: Sequence[Given], problems: InputProblems) -> tuple[ScenarioPool, ...]:
    """Return the pools of a scenario. InputError."""
    found: dict[str, ScenarioPool] = {}
    for each in given:
        if each.name in found:
            raise each.error("name", f"there are two pools {each.name!r}")
        if each.min > each.max:
            raise each.error("min", f"is {each.min} and `max` only {each.max}")
        found[each.name] = ScenarioPool(
            name=each.name,
            fleet=_fleet(each, problems),
            least=each.min,
            most=each.max,
            price=each.price,
            priority=each.priority,
            startup=_stage(each, "startup"),
            devices=_stage(each, "devices"),
            failure=each.failure,
            spot=None if each.spot is None else SpotMarket(**each.spot.values),
        )
    return tuple(found.values())


def autoscaled(
    given: Given, shapes: tuple[ScenarioPool, ...]
) -> tuple[Rules, tuple[ScenarioPool, ...]]:
    """Return the rules of the autoscaler of a scenario, and the pools that it asks for nodes."""
    chosen = given.autoscaler
    if isinstance(chosen, Given):
        flags = chosen[chosen.form]
        return _karpenter(flags, shapes) if chosen.form == KARPENTER else (
            ClusterAutoscalerRules(**flags.values), shapes
        )  # fmt: skip
    if chosen is not None and chosen not in FORMS:
        raise given.error("autoscaler", not_one_of(FORMS)(chosen))
    return FORMS[chosen or CLUSTER_AUTOSCALER][1](), shapes


def _karpenter(
    given: Given, shapes: tuple[ScenarioPool, ...]
) -> tuple[KarpenterRules, tuple[ScenarioPool, ...]]:
    flags = {
        key: value
        for key, value in given.values.items()
        if key not in {*OF_NODE_POOLS, "node_pools"}
    }
    if given.node_pools is None:
        only = NodePoolRules(
            consolidation=given.consolidation,
            consolidate_after=given.consolidate_after,
            budgets=(DisruptionBudget(nodes=given.budget),),
        )
        return KarpenterRules(**flags, node_pools=(only,)), shapes
    for key in OF_NODE_POOLS:
        if given.given.has(key):
            raise given.error(key, "is for the NodePools to say, where there are node_pools")
    templates, ignored = node_pools.read(given.node_pools)
    found = [pool for template in templates for pool in pools_of(template, shapes)]
    for shape in shapes:
        if shape.least:
            raise given.error("node_pools", f"do not go with `min` of the pool {shape.name}")
    for template in templates:
        if not any(each.group == template.rules.name for each in found):
            problem = f"no pool meets the requirements of NodePool {template.rules.name}"
            raise given.error("node_pools", problem)
    rules = tuple(template.rules for template in templates)
    return KarpenterRules(**flags, node_pools=rules, ignored=ignored), tuple(found)


def pools_of(template: NodePoolTemplate, shapes: Sequence[ScenarioPool]) -> list[ScenarioPool]:
    """Return the instance types that meet the requirements of a NodePool, as pools of it."""
    return [
        replace(
            shape,
            name=f"{template.rules.name}-{shape.name}",
            fleet=fleet,
            priority=template.rules.weight,
            group=template.rules.name,
            startup_taints=template.startup_taints,
        )
        for shape in shapes
        if (fleet := template.fleet(shape.fleet, shape.name, spot=shape.spot is not None))
    ]


def _stage(given: Given, key: str) -> Stage:
    value = given[key]
    times = value.values if isinstance(value, Given) else {"delay": value}
    return Stage(name=f"{key} of {given.name}", **times)


def _fleet(given: Given, problems: InputProblems) -> ScenarioFleet:
    """Return the one node of a pool."""
    match given.form:
        case "cpu":
            return ScenarioFleet(nodes=(fleet.node_named(given.name, given),))
        case "shape":
            sample = shapes.sample(given.shape, nodes=1)
            (node,) = rendering.nodes(sample)
            objects = (node, *rendering.v1(sample))
            found = ScenarioFleet(nodes=(fleet.checked_node(node, given.shape),), objects=objects)
        case _:
            found = fleet.from_manifests(given.manifests, problems)
            if len(found.nodes) != 1:
                raise given.error("manifests", f"must have one Node and has {len(found.nodes)}")
    return found

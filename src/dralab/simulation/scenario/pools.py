"""`pools:` and `autoscaler:` of a scenario: nodes that can be added, and who asks for them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dralab.capacity.autoscaling.cluster_autoscaler import EXPANDERS
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
from dralab.simulation.scenario import fleet
from dralab.simulation.scenario.fleet import ScenarioFleet
from dralab.values import json_schema

CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"
NEVER: Final = "Never"
CONSOLIDATIONS: Final = ("WhenEmptyOrUnderutilized", "WhenEmpty", NEVER)
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
    it never comes.
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
    """What a NodePool of Karpenter says; durations in nanoseconds.

    `budget` is how many nodes may be disrupted at a time: a number, or a part such as 10%.
    """

    batch_idle: int = SECOND
    batch_max: int = 10 * SECOND
    consolidation: str = "WhenEmptyOrUnderutilized"
    consolidate_after: int = 0
    budget: str = "10%"
    provision_timeout: int = 900 * SECOND

    @property
    def consolidates(self) -> bool:
        """Whether nodes are ever given up."""
        return self.consolidation != NEVER

    @property
    def only_empty(self) -> bool:
        """Whether only nodes without pods are given up."""
        return self.consolidation == "WhenEmpty"

    def allowed(self, nodes: int) -> int:
        """Return how many of so many nodes may be disrupted at a time; parts are rounded up."""
        part = self.budget.removesuffix("%")
        return -(-nodes * int(part) // 100) if part != self.budget else int(part)


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
NODE_POOL: Final = Table(
    {
        "batch_idle": duration(
            "It waits for more pods so long after the last one; default: 1s.",
            default=_KARPENTER.batch_idle,
        ),
        "batch_max": duration("And so long in all; default: 10s.", default=_KARPENTER.batch_max),
        "consolidation": choice(
            CONSOLIDATIONS, "Which nodes are given up.", default=_KARPENTER.consolidation
        ),
        "consolidate_after": duration(
            "After pods came to a node or left it, it stays so long; default: 0.",
            default=_KARPENTER.consolidate_after,
        ),
        "budget": label(
            "How many nodes are disrupted at a time: a number, or a part; default: 10%.",
            schema={"type": ["string", "integer"], "pattern": BUDGET, "minimum": 0},
            default=_KARPENTER.budget,
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


def rules(given: Given) -> Rules:
    """Return the rules of the autoscaler of a scenario."""
    chosen = given.autoscaler
    if isinstance(chosen, Given):
        _, made = FORMS[chosen.form]
        return made(**chosen[chosen.form].values)
    if chosen is None:
        return ClusterAutoscalerRules()
    if chosen not in FORMS:
        raise given.error("autoscaler", not_one_of(FORMS)(chosen))
    return FORMS[chosen][1]()


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

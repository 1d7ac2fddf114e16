"""The runs of a campaign: a case per scenario, scheduler and seed, identified by its inputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dralab.scenarios import code
from dralab.scenarios.errors import InputError
from dralab.scenarios.fields import Fields, load
from dralab.scenarios.tables import Table, field, file, label, number, row, whole
from dralab.simulation import checkpoints, dispatch
from dralab.simulation.policies.shipping import ShippedPolicy
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario
from dralab.simulation.scenario.scenario import DECIDES, Scenario, digest
from dralab.simulation.scenario.schedulers import BUILT_IN, EXTERNAL, unknown_scheduler
from dralab.values.json_schema import (
    FILE,
    TEXT,
    JsonSchema,
    any_of,
    document,
    listing,
    one_of_fields,
)

MOST_CASES: Final = 100_000
Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CampaignCase:
    """One run. `nodes` is set for a placement of an openb trace instead of a scenario.

    `policy` is the class that `scheduler` names, where that is not the name of one in a file.
    """

    scenario: Path
    scheduler: str
    seed: int
    nodes: Path | None = None
    ratio: float = 1.3
    policy: ShippedPolicy | None = None

    @property
    def name(self) -> str:
        """The scenario's name in tables."""
        return self.scenario.stem

    def load(self) -> Scenario:
        """Read what is run."""
        if self.nodes is None:
            policy = None if self.policy is None else self.policy.load()
            return scenario.load(
                self.scenario, seed=self.seed, scheduler=self.scheduler, policy=policy
            )
        return scenario.placement(
            self.nodes,
            self.scenario,
            policy=self.scheduler,
            seed=self.seed,
            inflate=self.ratio,
        )

    def digest(self) -> str:
        """Return a digest of everything that the result depends on."""
        whole = digest(self.load())
        if self.policy is not None:
            whole = checkpoints.digest((whole, self.policy.fingerprint), [])
        return whole[:32]

    def run(self) -> Numbers:
        """Run it, and return its numbers."""
        loaded = self.load()
        given = loaded.external
        if loaded.scheduler == EXTERNAL and not (given["command"] or given["schedulers"]):
            raise InputError(
                self.scenario,
                "must be given: a campaign cannot start it by hand",
                where="external.command",
            )
        result = dispatch.begin(loaded).go()
        if not result.complete:
            raise InputError(self.scenario, f"the run stopped early: {'; '.join(result.notes)}")
        return metrics.metrics_of(dispatch.measured(loaded, result))


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """All cases, the numbers to compare, and the baseline scheduler."""

    name: str
    file: Path
    cases: tuple[CampaignCase, ...]
    compared: tuple[str, ...]
    baseline: str


def _texts(fields: Fields, key: str) -> list[str]:
    value = fields.raw(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise fields.error(key, "must be a list of strings")
    return list(dict.fromkeys(value))


def _files(fields: Fields, key: str) -> list[Path]:
    if not fields.has(key):
        raise fields.error(key, "must be given: a list of CSV files")
    names = {f"{key}[{index}]": name for index, name in enumerate(_texts(fields, key))}
    inner = Fields(fields.place, fields.where, names)
    return [inner.file(name) for name in names]


def _seeds(fields: Fields, key: str) -> list[int]:
    value = fields.raw(key)
    if isinstance(value, dict):
        given = SEEDS.read(fields.mapping(key))
        return list(range(given["from"], given["from"] + given.count))
    if not isinstance(value, list) or not value or not all(type(v) is int for v in value):
        raise fields.error(key, "must be a list of whole numbers, or {from, count}")
    return list(dict.fromkeys(value))


SEEDS: Final = Table({"from": whole(default=1), "count": whole(least=1, required=True)})
OPENB: Final = Table(
    {
        "nodes": file(required=True),
        "pods": field(listing(FILE, 1), _files, required=True),
        "inflate": number("Clone pods until they ask for so much of all GPUs.", default=1.3),
    }
)
CAMPAIGN: Final = Table(
    {
        "name": label(),
        "scenarios": field(listing(FILE, 1), _files, "Scenario files.", default=()),
        "openb": row(OPENB, "Placements of openb traces.", always=False),
        "schedulers": field(listing(DECIDES, 1), _texts, required=True),
        "seeds": field(
            any_of(listing({"type": "integer"}, 1), SEEDS.schema()),
            _seeds,
            "A list, or so many from a first one.",
            required=True,
        ),
        "compare": field(listing(TEXT, 1), _texts, "Metrics, as of `dralab simulate run -o json`."),
        "baseline": label("The scheduler that others are compared with.", schema=DECIDES),
    },
    rules={"anyOf": one_of_fields("scenarios", "openb")},
)


def schema() -> JsonSchema:
    """Return the schema of campaign files."""
    return document(
        "Campaign of dralab",
        "Every scenario with every scheduler and every seed: `dralab simulate campaign FILE`.",
        CAMPAIGN.schema(),
    )


def read(path: Path) -> Campaign:
    """Return the campaign of a file. InputError."""
    given = CAMPAIGN.read(load(path))
    schedulers, seeds = given.schedulers, given.seeds
    for name in schedulers:
        if name not in {*BUILT_IN, EXTERNAL} and not code.is_file(name):
            raise given.error("schedulers", unknown_scheduler(name))
    cases = [
        CampaignCase(file, name, seed)
        for file in given.scenarios
        for name in schedulers
        for seed in seeds
    ]
    default: list[str] = []
    if traces := given.openb:
        cases += [
            CampaignCase(file, name, seed, traces.nodes, traces.inflate)
            for file in traces.pods
            for name in schedulers
            for seed in seeds
        ]
        default += ["alloc_pct@100", "frag_pct_of_idle@50"]
    if not cases or len(cases) > MOST_CASES:
        raise InputError(path, f"has {len(cases)} runs, but must have from 1 to {MOST_CASES}")
    if given.scenarios:
        default += ["makespan", "wait_mean", "bounded_slowdown_mean"]
    compared = tuple(given.compare or default)
    for metric in compared:
        if "@" not in metric and not metrics.is_known(metric):
            listed = ", ".join(metrics.DEFINITIONS)
            raise given.error("compare", f"{metric!r} is not a metric of a run; known: {listed}")
    baseline = schedulers[0] if given.baseline is None else given.baseline
    if baseline not in schedulers:
        raise given.error("baseline", f"{baseline!r} is not one of the schedulers")
    return Campaign(
        name=given.name or path.stem,
        file=path,
        cases=tuple(cases),
        compared=compared,
        baseline=baseline,
    )

"""The runs of a campaign: a case per scenario, scheduler and seed, identified by its inputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dralab.simulation import dispatch
from dralab.simulation.errors import InputError
from dralab.simulation.results import metrics
from dralab.simulation.scenario import custom, scenario, shorthand
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.fields import Fields, load
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import BUILT_IN, EXTERNAL

MOST_CASES: Final = 100_000
Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CampaignCase:
    """One run. `nodes` is set where it is a placement of an openb trace, not a scenario."""

    scenario: Path
    scheduler: str
    seed: int
    nodes: Path | None = None
    ratio: float = 1.3

    @property
    def name(self) -> str:
        """The scenario's name in tables."""
        return self.scenario.stem

    def load(self) -> Scenario:
        """Read what is run."""
        if self.nodes is None:
            return scenario.load(self.scenario, seed=self.seed, scheduler=self.scheduler)
        return shorthand.placement(
            self.nodes,
            self.scenario,
            policy=self.scheduler,
            seed=self.seed,
            inflate=self.ratio,
        )

    def digest(self) -> str:
        """Return what the result depends on as a short text: the same text, the same result."""
        return digest(self.load())[:32]

    def run(self) -> Numbers:
        """Run it, and return its numbers."""
        loaded = self.load()
        if loaded.scheduler == EXTERNAL and not {"command", "schedulers"} & set(loaded.external):
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
    """All cases, and what of their numbers is compared with which scheduler."""

    name: str
    file: Path
    cases: tuple[CampaignCase, ...]
    compared: tuple[str, ...]
    baseline: str


def read(path: Path) -> Campaign:
    """Return the campaign of a file; InputError names what is wrong."""
    fields = load(path)
    schedulers = _texts(fields, "schedulers")
    for name in schedulers:
        known = name in {*BUILT_IN, EXTERNAL} or custom.is_file(name)
        if not known:
            raise fields.error("schedulers", f"{name!r} is not a scheduler for campaigns")
    seeds = list(_seeds(fields))
    cases: list[CampaignCase] = []
    for file in _files(fields, "scenarios"):
        cases += [CampaignCase(file, name, seed) for name in schedulers for seed in seeds]
    if fields.has("openb"):
        inner = fields.mapping("openb")
        nodes, ratio = inner.file("nodes"), inner.number("inflate", 1.3)
        if not inner.has("pods"):
            raise inner.error("pods", "must be given: a list of CSV files")
        for file in _files(inner, "pods"):
            cases += [
                CampaignCase(file, n, seed, nodes, ratio) for n in schedulers for seed in seeds
            ]
        inner.done()
    if not cases or len(cases) > MOST_CASES:
        raise InputError(path, f"has {len(cases)} runs, but must have from 1 to {MOST_CASES}")
    default = ["alloc_pct@100", "frag_pct_of_idle@50"] if fields.has("openb") else []
    if fields.has("scenarios"):
        default += ["makespan", "wait_mean", "bounded_slowdown_mean"]
    compared = tuple(_texts(fields, "compare")) if fields.has("compare") else tuple(default)
    for number in compared:
        if "@" not in number and not metrics.is_known(number):
            listed = ", ".join(metrics.DEFINITIONS)
            raise fields.error("compare", f"{number!r} is not a metric of a run; known: {listed}")
    baseline = fields.text("baseline", schedulers[0])
    if baseline not in schedulers:
        raise fields.error("baseline", f"{baseline!r} is not one of the schedulers")
    name = fields.text("name", path.stem)
    fields.done()
    return Campaign(name=name, file=path, cases=tuple(cases), compared=compared, baseline=baseline)


def _texts(fields: Fields, key: str) -> list[str]:
    value = fields.raw(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise fields.error(key, "must be a list of strings")
    return list(dict.fromkeys(value))


def _files(fields: Fields, key: str) -> Iterator[Path]:
    if not fields.has(key):
        return
    for index, name in enumerate(_texts(fields, key)):
        inner = Fields(fields.place, fields.where, {f"{key}[{index}]": name})
        yield inner.file(f"{key}[{index}]")


def _seeds(fields: Fields) -> Iterator[int]:
    value = fields.raw("seeds")
    if isinstance(value, dict):
        inner = fields.mapping("seeds")
        first, count = inner.whole("from", 1), inner.whole("count", least=1)
        inner.done()
        yield from range(first, first + count)
        return
    if not isinstance(value, list) or not value or not all(type(v) is int for v in value):
        raise fields.error("seeds", "must be a list of whole numbers, or {from, count}")
    yield from dict.fromkeys(value)

"""What a reproduction is: cases, the files they read, and numbers with their verdict."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from dralab.scenarios.errors import content_of
from dralab.values.selections import selected

# Names → modules below this package, in the order in which they are listed.
MODULES: Final[Mapping[str, str]] = {
    "fgd": "fgd.published",
    "backfilling": "backfilling",
    "batkube": "batkube",
    "k8s-cluster-simulator": "ticks",
    "tiresias": "tiresias",
    "pollux": "pollux",
    "sia": "sia",
    "gavel": "gavel.published",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedNumber:
    """One number: what was published, what comes out here, and the difference that is allowed.

    >>> ComparedNumber(what="allocated", published=95.39, ours=95.4, within=0.5).verdict
    'agrees'
    """

    what: str
    published: float | None
    ours: float
    unit: str = ""
    within: float = 0.0
    why: str = ""

    @property
    def verdict(self) -> str:
        """`agrees` or `differs`; empty where no number was published that could be read."""
        if self.published is None:
            return ""
        # The sum of two decimal numbers is not always a decimal number.
        return "agrees" if abs(self.ours - self.published) <= self.within + 1e-9 else "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of others: its name in the user's directory, and where the user gets it.

    A name that ends in `/` is a directory.
    """

    name: str
    address: str
    licence: str
    # The first digits, of the file that the recorded results were computed from.
    sha256: str = ""

    def is_in(self, folder: Path) -> bool:
        """Return whether the user has it."""
        path = folder / self.name
        return path.is_dir() if self.name.endswith("/") else path.is_file()

    def differs(self, folder: Path) -> bool:
        """Return whether the user's file is another one than that of the recorded results."""
        if not self.sha256:
            return False
        found = hashlib.sha256(content_of(folder / self.name)).hexdigest()
        return not found.startswith(self.sha256)


CaseRun = Callable[[Sequence[Path], int], Iterable[ComparedNumber]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A part that can be run alone; `data` are the names of the files that `run` gets, in order."""

    name: str
    run: CaseRun
    data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A published experiment; `text` is the prose of its page, in Markdown."""

    name: str
    title: str
    paper: str
    address: str
    cases: tuple[Case, ...]
    data: tuple[DataFile, ...] = ()
    seed: int = 0
    time_there: str = "not published"
    # Seconds of one core, measured for the whole.
    time_here: float
    text: str

    def selected(self, patterns: Sequence[str]) -> list[Case]:
        """Return the cases of names, first parts of names or patterns. NothingSelectedError."""
        by_name = {case.name: case for case in self.cases}
        chosen = selected(
            list(by_name),
            patterns,
            after_group="/",
            kind=f"case of {self.name}",
            listed_by="dralab reproduce -o yaml",
        )
        return [by_name[each] for each in chosen]

    def files_of(self, cases: Iterable[Case]) -> list[DataFile]:
        """Return the files that cases read."""
        names = {name for case in cases for name in case.data}
        return [each for each in self.data if each.name in names]


def reproductions() -> list[Reproduction]:
    """Return all reproductions."""
    return [named(name) for name in MODULES]


def named(name: str) -> Reproduction:
    """Return the reproduction of a name; KeyError if there is none."""
    module = import_module(f"dralab.simulation.reproductions.{MODULES[name]}")
    found: Reproduction = module.REPRODUCTION
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionResult:
    """The numbers of a reproduction, by the names of its cases."""

    reproduction: Reproduction
    seed: int
    rows: Sequence[tuple[str, ComparedNumber]]

    @property
    def compared(self) -> int:
        """How many numbers were published."""
        return sum(bool(row.verdict) for _, row in self.rows)

    @property
    def agreeing(self) -> int:
        """How many agree."""
        return sum(row.verdict == "agrees" for _, row in self.rows)

    @property
    def agrees(self) -> bool:
        """Whether all published numbers agree."""
        return self.agreeing == self.compared > 0

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as data."""
        return {
            "name": self.reproduction.name,
            "title": self.reproduction.title,
            "seed": self.seed,
            "verdict": "agrees" if self.agrees else "differs",
            "compared": self.compared,
            "agreeing": self.agreeing,
            "rows": [
                {
                    "case": case,
                    "what": row.what,
                    "published": row.published,
                    "ours": row.ours,
                    "unit": row.unit,
                    "within": row.within,
                    "verdict": row.verdict,
                    "why": row.why,
                }
                for case, row in self.rows
            ],
        }

"""Input errors: always with the file, and with line and field if known.

InputError              a file cannot be used as it is
└─ DecisionError        a scheduler asked for something impossible
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.files.reading import read

LONGEST: Final = 1000
LARGEST_FILE: Final = 2 << 30  # bytes


class InputError(ValueError):
    """One error in one input.

    >>> str(InputError("jobs.json", "must not be negative", line=7, where="jobs[2].subtime"))
    'jobs.json:7: jobs[2].subtime: must not be negative'
    """

    def __init__(
        self, file: str | Path, problem: str, *, line: int | None = None, where: str = ""
    ) -> None:
        if len(problem) > LONGEST:
            # It quotes a value of the file: both ends tell what it is about.
            problem = f"{problem[: LONGEST // 2]} … {problem[-LONGEST // 2 :]}"
        super().__init__(problem)
        self.file = str(file)
        self.problem = problem
        self.line = line
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error, for the processes of a campaign."""
        return partial(InputError, line=self.line, where=self.where), (self.file, self.problem)

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: where the mistake is, and not where it was found."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.where, self.problem) if part)


class DecisionError(InputError):
    """A scheduler's decision that the simulated machines cannot carry out."""

    def __init__(self, problem: str, *, scheduler: str = "scheduler") -> None:
        super().__init__(scheduler, problem)


@dataclass(slots=True)
class InputProblems:
    """Strict: the first error stops the reading. Lenient: the broken entry is skipped, counted."""

    lenient: bool = False
    skipped: list[InputError] = field(default_factory=list)

    def about(self, error: InputError) -> None:
        """Raise the error, or remember it where reading is lenient."""
        if not self.lenient:
            raise error
        self.skipped.append(error)


def content_of(path: Path, most: int = LARGEST_FILE) -> bytes:
    """Return the content of an input file. InputError."""
    try:
        return read(path, most)
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # a null character in its name
        raise InputError(repr(str(path)), f"cannot be read: {error}") from None


def inside(folder: Path, name: str, *, file: str | Path, where: str, folders: bool = False) -> Path:
    """Return the path of a file that an input names; InputError if it leaves the folder.

    With `folders`, it may name a folder as well.
    """
    try:
        path = (folder / name).resolve()
        found = path.is_file() or (folders and path.is_dir())
    except (OSError, ValueError) as error:  # too long, or with a null character
        told = getattr(error, "strerror", None) or str(error)
        raise InputError(file, f"{name!r} is not the name of a file: {told}", where=where) from None
    if not path.is_relative_to(folder.resolve()):
        raise InputError(file, f"{name!r} is outside the folder of the file", where=where)
    if not found:
        raise InputError(file, f"there is no file {name!r} beside it", where=where)
    return path

"""Reading a YAML mapping field by field, with errors that name the line and the field."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dralab.api.yaml_documents import YamlError, documents
from dralab.kernel.durations import duration
from dralab.scenarios.errors import InputError, content_of, inside
from dralab.values.near_names import not_one_of
from dralab.values.quantity import QuantityError, parse_any

LARGEST_SCENARIO: Final = 256 << 20
MOST: Final = 1e18
LARGEST_AMOUNT: Final = (1 << 63) - 1  # as of Kubernetes' quantities


def is_number(value: object) -> bool:
    """Return whether a value is a number (true and false are not)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class FieldSource:
    """A file and the lines of its fields."""

    path: Path
    lines: Mapping[str, int] = field(default_factory=dict)

    def error(self, where: str, problem: str) -> InputError:
        """Return an error about a field, with its line or that of its nearest parent."""
        known = where
        while known and known not in self.lines:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        return InputError(self.path, problem, line=self.lines.get(known), where=where)


def load(path: Path) -> "Fields":
    """Return the mapping of a YAML file with one document."""
    raw = content_of(path, LARGEST_SCENARIO)
    try:
        found = [d for d in documents(raw, positions=True) if d.value is not None]
    except YamlError as error:
        raise InputError(path, error.message, line=error.line or None) from None
    if len(found) != 1 or not isinstance(found[0].value, dict):
        raise InputError(path, "must hold one mapping")
    if found[0].repeated:
        where, line = found[0].repeated[0]
        raise InputError(path, "is given twice", line=line, where=where)
    return Fields(FieldSource(path, found[0].positions), "", found[0].value)


class Fields:
    """One mapping; it remembers which fields were read."""

    def __init__(self, place: FieldSource, where: str, value: Any) -> None:
        self.place = place
        self.where = where
        if not isinstance(value, dict):
            raise place.error(where, "must be a mapping")
        self.value: dict[str, Any] = value
        self._known: set[str] = set()

    @property
    def folder(self) -> Path:
        """The folder of relative file names."""
        return self.place.path.parent

    def path_to(self, key: str) -> str:
        """Return the full path of a field."""
        return f"{self.where}.{key}" if self.where else key

    def error(self, key: str, problem: str) -> InputError:
        """Return an error about a field."""
        return self.place.error(self.path_to(key), problem)

    def has(self, key: str) -> bool:
        """Return whether a field is given (and not null)."""
        self._known.add(key)
        return self.value.get(key) is not None

    def raw(self, key: str) -> Any:
        """Return a value as it is."""
        self._known.add(key)
        return self.value.get(key)

    def text(self, key: str) -> str:
        """Return a text (numbers are texts, too)."""
        value = self.raw(key)
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise self.error(key, "must be a string" if self.has(key) else "must be given")
        return str(value)

    def choice(self, key: str, known: Collection[str]) -> str:
        """Return one of the known names."""
        value = self.text(key)
        if value not in known:
            raise self.error(key, not_one_of(value, known))
        return value

    def number(self, key: str, *, least: float = 0.0) -> float:
        """Return a number that is at least `least`."""
        value = self.raw(key)
        if not is_number(value) or not least <= value < MOST:
            is_much = is_number(value) and value >= MOST
            bound = f"below {MOST:g}" if is_much else f"at least {least:g}"
            raise self.error(key, f"must be a number, {bound}, and is {value!r}")
        return float(value)

    def whole(self, key: str, *, least: int = 0, most: int | None = None) -> int:
        """Return a whole number that is at least `least` and at most `most`."""
        value = self.number(key, least=least)
        if value != int(value):
            raise self.error(key, f"must be a whole number and is {value!r}")
        if most is not None and value > most:
            raise self.error(key, f"must be at most {most} and is {int(value)}")
        return int(value)

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self.raw(key)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def duration(self, key: str) -> int:
        """Return nanoseconds from `90`, `1.5h`, `1h30m`."""
        try:
            return duration(self.raw(key))
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def quantity(self, key: str, *, scale: int = 1) -> int:
        """Return a quantity times `scale`, rounded up: `cpu` in milli has scale 1000."""
        value = self.raw(key)
        try:
            number = parse_any(value)
        except QuantityError:
            odd = f"{value!r} is not" if self.has(key) else "must be given as"
            raise self.error(key, f"{odd} a quantity: write 4, 500m or 16Gi") from None
        if number < 0:
            raise self.error(key, "must not be negative")
        if number * scale > LARGEST_AMOUNT:
            raise self.error(key, f"{value!r} is too much: at most {LARGEST_AMOUNT // scale}")
        return -int(-number * scale // 1)

    def mapping(self, key: str) -> "Fields":
        """Return a mapping inside; an empty one where it is not given."""
        value = self.raw(key)
        return Fields(self.place, self.path_to(key), {} if value is None else value)

    def mappings(self, key: str) -> Iterator["Fields"]:
        """Yield the mappings of a list."""
        value = self.raw(key)
        if value is None:
            return
        if not isinstance(value, list):
            raise self.error(key, "must be a list")
        for index, item in enumerate(value):
            yield Fields(self.place, f"{self.path_to(key)}[{index}]", item)

    def texts(self, key: str) -> Iterator[str]:
        """Yield the texts of a list."""
        value = self.raw(key)
        if value is not None and not isinstance(value, list):
            raise self.error(key, "must be a list")
        for index, item in enumerate(value or ()):
            if not isinstance(item, str):
                raise self.place.error(f"{self.path_to(key)}[{index}]", "must be a string")
            yield item

    def labels(self, key: str) -> frozenset[str]:
        """Return a mapping of texts as `key=value`."""
        inner = self.mapping(key)
        return frozenset(f"{name}={inner.text(name)}" for name in inner.value)

    def file(self, key: str, *, folders: bool = False) -> Path:
        """Return a file (or with `folders`, a folder) inside the folder of this one."""
        try:
            return inside(
                self.folder, self.text(key), file=self.place.path, where="", folders=folders
            )
        except InputError as error:
            raise self.error(key, error.problem) from None

    def new_folder(self, key: str) -> Path:
        """Return a folder to write to, inside the folder of this file."""
        path = (self.folder / self.text(key)).resolve()
        if not path.is_relative_to(self.folder.resolve()) or path.is_file():
            raise self.error(key, "must be a folder inside the folder of the file")
        return path

    def done(self) -> None:
        """Refuse unknown fields."""
        for key in self.value:
            if key not in self._known:
                known = ", ".join(sorted(self._known))
                raise self.error(key, f"is unknown; known: {known}")


def numbered(name: str, count: int) -> Iterator[str]:
    """Yield the numbered names of several items, or the name itself for one."""
    yield from [name] if count == 1 else (f"{name}-{index}" for index in range(count))

"""A built-in kind with more fields than Kubernetes gives it: older device APIs put some in pods."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dralab.api import structural
from dralab.api.decoding import decoder_of
from dralab.api.fields import FieldError
from dralab.api.kinds import Kind
from dralab.api.schemas import Schema
from dralab.api.strategy import ScalePaths, Strategy
from dralab.values.json_types import JsonDict

EACH: Final = "*"
Fields = Mapping[tuple[str, ...], Mapping[str, Any]]
Mend = Callable[[JsonDict], list[str]]
Check = Callable[[JsonDict], list[FieldError]]
# What holds an added field, its name and value, and where it is.
Place = tuple[JsonDict, str, Any, str]


class ExtendedStrategy(Strategy):
    """The rules of a kind, and those of the fields that it has on top.

    `fields` maps paths to structural schemas; `*` in a path stands for each element of a list:
    `("spec", "containers", "*", "devices")`. `mend` is that of `Strategy`; `check` finds
    what is wrong with the added fields beyond their schemas.
    """

    def __init__(
        self,
        base: Strategy,
        kind: Kind,
        fields: Fields,
        *,
        mend: Mend | None = None,
        check: Check | None = None,
    ) -> None:
        self._mend = mend
        self._check = check
        self.base = base
        self.kind = kind
        self.fields = dict(fields)
        self.unconditional = base.unconditional
        self.creates_on_update = base.creates_on_update
        self.keeps_status = base.keeps_status
        self.status_keeps = base.status_keeps
        self.counted = base.counted

    def decode(self, value: JsonDict, version: str) -> tuple[JsonDict, list[str]] | None:
        """Return the object as the built-in definitions read it, with the added fields."""
        if not any(True for _ in self._places(value)):
            return self.base.decode(value, version)
        places = list(self._places(value))
        for holder, name, _, _ in places:
            del holder[name]
        found = self.base.decode(value, version)
        if found is None:
            decoder = decoder_of(self.kind.api_version, self.kind.kind)
            found = (value, []) if decoder is None else decoder.decode(value)
        decoded, unknown = found
        for path, schema in self.fields.items():
            for holder, name, item, where in places:
                if name == path[-1] and _matches(path, where):
                    unknown = [
                        *unknown,
                        *(f"{where}.{below}" for below in structural.prune(schema, item)),
                    ]
                    holder[name] = item
        return decoded, unknown

    def _places(self, value: JsonDict) -> Iterator[Place]:
        for path in self.fields:
            yield from _found(value, path, "")

    def mend(self, value: JsonDict) -> list[str]:
        """Change what is read as something else; return what to warn of."""
        found = self.base.mend(value)
        return found if self._mend is None else found + self._mend(value)

    def schema(self, version: str) -> Schema | None:
        """Return the schema of the base."""
        return self.base.schema(version)

    def scale_paths(self, version: str) -> ScalePaths:
        """Return those of the base."""
        return self.base.scale_paths(version)

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        self.base.default(value)
        for path, schema in self.fields.items():
            for _, _, item, _ in _found(value, path, ""):
                structural.apply_defaults(schema, item)

    def prepare_create(self, value: JsonDict, now: str) -> None:
        """As the base."""
        self.base.prepare_create(value, now)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """As the base."""
        self.base.prepare_update(new, old, now)

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """As the base."""
        self.base.prepare_status(new, old, now)

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong, in the added fields too."""
        return self.base.validate(value) + self._errors(value)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with a change; if it may be made, in the added fields too."""
        return self.base.validate_update(new, old) or self._errors(new)

    def _errors(self, value: JsonDict) -> list[FieldError]:
        found = [
            error
            for path, schema in self.fields.items()
            for _, _, item, where in _found(value, path, "")
            for error in structural.errors(schema, item, where)
        ]
        return found if found or self._check is None else self._check(value)

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """As the base."""
        return self.base.validate_status(new, old)

    def deletion_finalizers(self) -> list[str]:
        """As the base."""
        return self.base.deletion_finalizers()

    def marked(self, value: JsonDict, now: str) -> None:
        """As the base."""
        self.base.marked(value, now)

    def name_problems(self, name: str) -> list[str]:
        """As the base."""
        return self.base.name_problems(name)

    def warnings(self, value: JsonDict) -> list[str]:
        """As the base."""
        return self.base.warnings(value)


def _found(value: Any, path: tuple[str, ...], at: str) -> Iterator[Place]:
    """Yield where a path leads in a value."""
    name, rest = path[0], path[1:]
    if name == EACH:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _found(item, rest, f"{at}[{index}]")
        return
    if not isinstance(value, dict) or name not in value:
        return
    where = f"{at}.{name}" if at else name
    if rest:
        yield from _found(value[name], rest, where)
    else:
        yield value, name, value[name], where


def _matches(path: tuple[str, ...], where: str) -> bool:
    plain = ".".join(part for part in path if part != EACH)
    parts = [part.partition("[")[0] for part in where.split(".")]
    return plain == ".".join(parts)

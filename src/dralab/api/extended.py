"""A built-in kind with more fields than Kubernetes gives it: older device APIs put some in pods."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

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


class _Leaf(NamedTuple):
    """Where the way to an added field ends."""

    schema: Mapping[str, Any]


# The names on the way to the added fields.
_Tree = dict[str, "_Tree | _Leaf"]


class _Place(NamedTuple):
    """An added field of an object: what holds it, its name and value, and where it is."""

    holder: JsonDict
    name: str
    item: Any
    where: str
    schema: Mapping[str, Any]


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
        self._tree = _tree_of(fields)
        self.unconditional = base.unconditional
        self.creates_on_update = base.creates_on_update
        self.keeps_status = base.keeps_status
        self.status_keeps = base.status_keeps
        self.counted = base.counted

    def decode(self, value: JsonDict, version: str) -> tuple[JsonDict, list[str]] | None:
        """Return the object as the built-in definitions read it, with the added fields."""
        places = self._places(value)
        if not places:
            return self.base.decode(value, version)
        for place in places:
            del place.holder[place.name]
        found = self.base.decode(value, version)
        if found is None:
            decoder = decoder_of(self.kind.api_version, self.kind.kind, self.kind.release)
            found = (value, []) if decoder is None else decoder.decode(value)
        decoded, unknown = found
        for holder, name, item, where, schema in places:
            pruned = structural.prune(schema, item)
            unknown = [*unknown, *(f"{where}.{below}" for below in pruned)]
            holder[name] = item
        return decoded, unknown

    def _places(self, value: JsonDict) -> list[_Place]:
        found: list[_Place] = []
        _look_for(self._tree, value, "", found)
        return found

    def mend(self, value: JsonDict) -> list[str]:
        """Rewrite fields that are read as others; return warnings."""
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
        for place in self._places(value):
            structural.apply_defaults(place.schema, place.item)

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
        """Return the errors; added fields of a wrong shape alone, since the base reads them."""
        return self.judged(value)[0]

    def judged(self, value: JsonDict) -> tuple[list[FieldError], list[str]]:
        """Return the errors, as `validate` does, or the warnings of the base."""
        if wrong := self._shape_errors(value):
            return wrong, []
        errors, told = self.base.judged(value)
        return errors + self._checked(value), told

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a change; if it may be made, in the added fields too."""
        wrong = self._shape_errors(new)
        return wrong or self.base.validate_update(new, old) or self._checked(new)

    def _shape_errors(self, value: JsonDict) -> list[FieldError]:
        return [
            error
            for place in self._places(value)
            for error in structural.errors(place.schema, place.item, place.where)
        ]

    def _checked(self, value: JsonDict) -> list[FieldError]:
        return [] if self._check is None else self._check(value)

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

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """As the base."""
        return self.base.warnings(value, old)


def _tree_of(fields: Fields) -> _Tree:
    tree: _Tree = {}
    for path, schema in fields.items():
        below = tree
        for name in path[:-1]:
            step = below.setdefault(name, {})
            if isinstance(step, _Leaf):
                raise TypeError(f"{path} leads through an added field")
            below = step
        below[path[-1]] = _Leaf(schema)
    return tree


def _look_for(tree: _Tree, value: Any, at: str, found: list[_Place]) -> None:
    """Add the added fields in a value; nearly all objects have none, so the way there is short."""
    if type(value) is dict:
        for name, below in tree.items():
            if name not in value:
                continue
            where = f"{at}.{name}" if at else name
            if isinstance(below, _Leaf):
                found.append(_Place(value, name, value[name], where, below.schema))
            else:
                _look_for(below, value[name], where, found)
    elif type(value) is list and isinstance(each := tree.get(EACH), dict):
        for index, item in enumerate(value):
            _look_for(each, item, f"{at}[{index}]", found)

"""A cache of the field sets of new objects, by their shape.

A thousand pods from one template have the same field names, so their creator owns the same set of
fields. The shape is what this set depends on: names, and the keys of list elements, without the
values. A cache lookup costs a tenth of building the set, and all objects of one shape share it.
"""

from collections.abc import Mapping
from typing import Any, Final

from dralab.apiserver.managed_fields.forms import Form
from dralab.apiserver.managed_fields.paths import FieldSet

LIMIT: Final = 400_000  # parts of all shapes together; one takes some 200 bytes with its fields
LONG: Final = 32  # characters of a name that count as one part
LARGEST: Final = 2000  # parts of a shape: larger ones are not likely to come again
COMPOSED: Final = frozenset({dict, list})
Shape = tuple[Any, ...]


class FieldSetCache:
    """Sets of fields by the form and the shape of what they were made from."""

    def __init__(self) -> None:
        self._found: dict[tuple[Form, Shape], FieldSet] = {}
        self._size = 0

    def get(self, form: Form, shape: Shape) -> FieldSet | None:
        """Return the set of an object of that shape; it may not be changed."""
        return self._found.get((form, shape))

    def keep(self, form: Form, shape: Shape, fields: FieldSet) -> None:
        """Remember a set."""
        size = sum(map(_size, shape))
        if size > LARGEST:
            return
        if self._size + size > LIMIT:
            self._found.clear()
            self._size = 0
        self._found[form, shape] = fields
        self._size += size


def _size(part: Any) -> int:
    if type(part) is _Level:
        return part.size
    return 1 + len(part) // LONG if type(part) is str else 1


class _Level:
    """What mappings with the same names have in common, in one form.

    It stands for itself in a shape: there is one for each form and names. `mappings` and `lists`
    are the parts whose contents count. `open` are names of parts whose kind only the value tells;
    the others are owned as a whole, whatever they are.
    """

    __slots__ = ("lists", "mappings", "open", "size")

    def __init__(self, form: Form, names: tuple[str, ...]) -> None:
        parts = [(name, form.below(name)) for name in names]
        self.size = sum(map(_size, names))
        self.open = tuple(name for name, part in parts if part.open)
        self.mappings = tuple(
            (name, part) for name, part in parts if part.kind == "fields" and not part.open
        )
        self.lists = tuple((name, part) for name, part in parts if part.kind in {"map", "set"})


class _Levels:
    """The levels that were seen, as many as there is room for."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], _Level] = {}
        self._size = 0

    def add(self, signature: tuple[Any, ...]) -> _Level:
        """Return a new level; `signature` is the form, then all names."""
        level = _Level(signature[0], signature[1:])
        if level.size <= LARGEST:
            if self._size + level.size > LIMIT:
                self.found.clear()
                self._size = 0
            self.found[signature] = level
            self._size += level.size
        return level


LEVELS: Final = _Levels()


def shape_of(value: Mapping[str, Any], form: Form) -> Shape | None:
    """Return the shape of a mapping; None for one that is not worth remembering.

    >>> form = Form.from_schema(None)
    >>> shape_of({"a": {"b": 1}}, form) == shape_of({"a": {"b": 2}}, form)
    True
    """
    found: list[Any] = []
    if form.open or _has_zero(value, form) or not _note(value, form, found):
        return None
    return tuple(found)


def _has_zero(value: Mapping[str, Any], form: Form) -> bool:
    """Return whether a field that is always present has its zero value: then nobody wrote it."""
    for name, zero in form.zeros.items():
        item = value.get(name, zero)
        if type(item) is dict and (item or form.below(name).kind != "atomic"):
            if _has_zero(item, form.below(name)):
                return True
        elif item == zero and name in value:
            return True
    return False


def _note(value: Mapping[str, Any], form: Form, found: list[Any]) -> bool:
    """Add the parts of a struct or a map; return False if it gets too large or is unclear."""
    if len(value) > LARGEST:
        return False
    signature = (form, *value)
    level = LEVELS.found.get(signature) or LEVELS.add(signature)
    # What is null has no owner, whatever its form says.
    if level.size > LARGEST or len(found) > LARGEST or None in value.values():
        return False
    found.append(level)
    for name in level.open:
        if type(value[name]) in COMPOSED:
            return False
    for name, part in level.mappings:
        item = value[name]
        if type(item) is not dict or not _note(item, part, found):
            return False
    for name, part in level.lists:
        item = value[name]
        if type(item) is not list or not _note_list(item, part, found):
            return False
    return True


def _note_list(items: list[Any], form: Form, found: list[Any]) -> bool:
    found.append(len(items))
    element = form.element
    if form.kind == "set":
        for item in items:
            if type(item) is not str:
                return False
            found.append(item)
        return True
    keys = form.keys
    for item in items:
        if type(item) is not dict:
            return False
        for key, default in keys:
            value = item.get(key, default)
            if type(value) is dict or type(value) is list:
                return False
            # 1 and True, or 1 and 1.0, are one key of a dict but not one step.
            found.append(value if type(value) is str else (type(value), value))
        if not _note(item, element, found):
            return False
    return True

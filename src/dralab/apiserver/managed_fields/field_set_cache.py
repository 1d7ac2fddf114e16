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
    """What mappings with the same names and types of values have in common, in one form.

    It stands for itself in a shape: there is one for each form, names and types. `clear` says that
    nothing in it has a kind that only its value tells.
    """

    __slots__ = ("clear", "lists", "mappings", "size")

    def __init__(self, form: Form, names: tuple[str, ...], types: tuple[type, ...]) -> None:
        mappings: list[tuple[str, Form]] = []
        lists: list[tuple[str, Form]] = []
        self.clear = True
        self.size = sum(map(_size, names))
        for name, kind in zip(names, types, strict=True):
            if kind is not dict and kind is not list:
                continue
            part = form.below(name)
            if part.open:
                self.clear = False
            elif kind is dict and part.kind == "fields":
                mappings.append((name, part))
            elif kind is list and part.kind in {"map", "set"}:
                lists.append((name, part))
            # Others are owned as a whole: nothing below them counts.
        self.mappings, self.lists = tuple(mappings), tuple(lists)


class _Levels:
    """The levels that were seen, as many as there is room for."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], _Level] = {}
        self._size = 0

    def add(self, signature: tuple[Any, ...]) -> _Level:
        """Return a new level; `signature` is the form, then all names, then all types."""
        end = len(signature) // 2 + 1
        level = _Level(signature[0], signature[1:end], signature[end:])
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
    if form.open or not _note(value, form, found):
        return None
    return tuple(found)


def _note(value: Mapping[str, Any], form: Form, found: list[Any]) -> bool:
    """Add the parts of a struct or a map; return False if it gets too large or is unclear."""
    signature = (form, *value, *map(type, value.values()))
    level = LEVELS.found.get(signature) or LEVELS.add(signature)
    if not level.clear or level.size > LARGEST or len(found) > LARGEST:
        return False
    found.append(level)
    for name, part in level.mappings:
        if not _note(value[name], part, found):
            return False
    for name, part in level.lists:  # noqa: SIM110 - a generator takes twice as long
        if not _note_list(value[name], part, found):
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

"""A cache of the field sets of new objects, by their shape.

A thousand pods from one template have the same field names, so their creator owns the same set of
fields. The shape is what this set depends on: names, and the keys of list elements, without the
values. A cache lookup costs a fifth of building the set, and all objects of one shape share it.
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
        size = len(shape) + sum(len(part) // LONG for part in shape if type(part) is str)
        if size > LARGEST:
            return
        if self._size + size > LIMIT:
            self._found.clear()
            self._size = 0
        self._found[form, shape] = fields
        self._size += size


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
    below = form.below
    for name, item in value.items():
        kind = type(item)
        if kind is dict or kind is list:
            part = below(name)
            if part.open or len(found) > LARGEST:
                return False
            shape = part.kind
            if kind is dict and shape == "fields":
                found.append(name)
                found.append(1)
                if not _note(item, part, found):
                    return False
                found.append(2)
            elif kind is list and shape in {"map", "set"}:
                found.append(name)
                found.append(3)
                if not _note_list(item, part, found):
                    return False
                found.append(2)
            else:
                # Owned as a whole: nothing below it counts.
                found.append(name)
                found.append(4)
        else:
            found.append(name)
            if item is None:
                found.append(5)
    return True


def _note_list(items: list[Any], form: Form, found: list[Any]) -> bool:
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
        found.append(6)
        if not _note(item, element, found):
            return False
    return True

"""Sets of fields, in the form in which managedFields stores them (`fieldsV1`).

A set is a mapping of steps to sets: `f:NAME` a field, `k:{...}` an element of a list by its
keys, `v:VALUE` an element of a set by its value, and `.` for the thing itself. A thing with
nothing below it is written as an empty mapping, so only the whole set can be empty.

Rules: sigs.k8s.io/structured-merge-diff `fieldpath`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

FieldSet = dict[str, Any]
SELF: Final = "."
# A thing with nothing below it; shared, and never changed.
LEAF: Final[FieldSet] = {}


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return what is in one set or the other."""
    if not right:
        return left
    if not left:
        return right
    found = dict(left)
    for step, below in right.items():
        known = found.get(step)
        found[step] = below if known is None else _joined(known, below)
    return found


def union_of(sets: Sequence[FieldSet]) -> FieldSet:
    """Return the union of some sets; merged in pairs, which is cheap for many small ones."""
    rest = list(sets)
    while len(rest) > 1:
        pairs = [union(left, right) for left, right in zip(rest[::2], rest[1::2], strict=False)]
        rest = pairs + rest[len(pairs) * 2 :]
    return rest[0] if rest else {}


def _joined(left: FieldSet, right: FieldSet) -> FieldSet:
    found = union(left, right)
    if not (left and right) and found:
        # One of them is the thing itself and nothing below it.
        found = {SELF: {}, **found}
    return found


def difference(left: FieldSet, right: FieldSet, *, recursive: bool = False) -> FieldSet:
    """Return what is in `left` and not in `right`; `left` itself where that is all of it.

    `recursive`: what `right` has takes everything below with it.
    """
    if left.keys().isdisjoint(right):
        return left
    found = {}
    for step, below in left.items():
        other = right.get(step)
        if step == SELF:
            if other is None:
                found[step] = below
            continue
        if other is None:
            found[step] = below
            continue
        if recursive and _has_self(other):
            continue
        rest = _reduced(below, other, recursive=recursive)
        if rest is not None:
            found[step] = rest
    same = len(found) == len(left) and all(found[step] is left[step] for step in found)
    return left if same else found


def _reduced(left: FieldSet, right: FieldSet, *, recursive: bool) -> FieldSet | None:
    if not left:
        return None if _has_self(right) else left
    keeps = SELF in left and not _has_self(right)
    rest = difference(left, right, recursive=recursive)
    if rest is left and keeps == (SELF in left):
        return left
    return _node({step: rest[step] for step in rest if step != SELF}, keeps=keeps)


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return what is in both sets."""
    found = {}
    for step, below in left.items():
        other = right.get(step)
        if other is None or step == SELF:
            continue
        rest = intersection(below, other) if below and other else {}
        node = _node(rest, keeps=_has_self(below) and _has_self(other))
        if node is not None:
            found[step] = node
    return found


def _node(below: FieldSet, *, keeps: bool) -> FieldSet | None:
    if not below:
        return {} if keeps else None
    return {SELF: {}, **below} if keeps else below


def _has_self(node: FieldSet) -> bool:
    return not node or SELF in node


def without_field(fields: FieldSet, path: tuple[str, ...]) -> FieldSet:
    """Return the set without one field and all that is below it."""
    right: FieldSet = {}
    for name in reversed(path):
        right = {f"f:{name}": right}
    return difference(fields, right, recursive=True)


def ordered(fields: FieldSet) -> FieldSet:
    """Return the set in the canonical order."""
    return {step: ordered(fields[step]) if fields[step] else {} for step in sorted(fields)}


def each(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Yield each member of a set as a text, such as `.spec.containers[name="c"].image`."""
    for step in sorted(fields):
        if step == SELF:
            continue
        below = fields[step]
        path = prefix + shown(step)
        if _has_self(below):
            yield path
        if below:
            yield from each(below, path)


def shown(step: str) -> str:
    """Return a step as conflicts show it.

    >>> shown('k:{"containerPort":80,"protocol":"TCP"}')
    '[containerPort=80,protocol="TCP"]'
    """
    kind, _, text = step.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = orjson.loads(text)
        return "[" + ",".join(f"{key}={plain(value)}" for key, value in keys.items()) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"


def plain(value: Any) -> str:
    """Return a value as a step of a path spells it: compact JSON."""
    return orjson.dumps(value).decode()


def is_field_set(value: Any) -> bool:
    """Return whether a value has the form of a set of fields."""
    rest = [value]
    while rest:
        item = rest.pop()
        if not isinstance(item, Mapping):
            return False
        for step, below in item.items():
            if step != SELF and step[:2] not in {"f:", "k:", "v:", "i:"}:
                return False
            if step[:2] == "k:" and not _is_key(step[2:]):
                return False
            rest.append(below)
    return True


def _is_key(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False

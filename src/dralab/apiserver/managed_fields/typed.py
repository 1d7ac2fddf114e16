"""Operations on objects by their forms: compare, merge, reduce, check.

Rules: sigs.k8s.io/structured-merge-diff `typed`. A field that Go always writes counts as there
(see `api.messages`), so that ownership is the same as on a server written in Go.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dralab.apiserver.managed_fields.forms import Form, StepError
from dralab.apiserver.managed_fields.paths import LEAF, SELF, FieldSet, shown
from dralab.values.go_text import go_quoted, go_value

MISSING: Final[Any] = object()
GO_TYPES: Final[dict[type, str]] = {
    bool: "bool", dict: "map[string]interface {}", list: "[]interface {}",
}  # fmt: skip
PLAIN: Final = frozenset({str, int, bool, float})
SHORTEST: Final = 2  # steps, the list itself among them: fewer elements are in order anyway


# --- What is owned ----------------------------------------------------------------------


def created(value: Any, form: Form) -> FieldSet:
    """Return what is below a new value, itself included.

    StepError for an element that cannot be told from others, as in `compared`.
    """
    kind = form.seen(value)
    if kind == "fields" and isinstance(value, dict):
        return _created_fields(value, form)
    if kind in {"map", "set"} and isinstance(value, list) and value:
        node: FieldSet = {SELF: LEAF}
        element = form.element
        for item in value:
            step = form.step(item)
            # Elements that cannot be told apart are owned together.
            node[step] = LEAF if step in node else created(item, element)
        return {step: node[step] for step in sorted(node)} if len(node) > SHORTEST else node
    return LEAF


def _created_fields(value: dict[str, Any], form: Form) -> FieldSet:
    zeros = form.zeros
    if not value and not zeros:
        return LEAF
    node: FieldSet = {SELF: LEAF}
    missing = [name for name in zeros if name not in value] if zeros else ()
    # Hot: most of an object is plain values, which need no look at their form.
    for name in sorted([*value, *missing]) if missing else sorted(value):
        item = value.get(name)
        if item.__class__ in PLAIN:
            node["f:" + name] = LEAF
            continue
        if item is None:
            # Only custom resources keep a null that is not written for nothing.
            item = zeros.get(name)
        node["f:" + name] = created(item, form.below(name))
    return node


def compared(old: Any, new: Any, form: Form) -> tuple[FieldSet, FieldSet]:
    """Return what was written, and what was removed, between two versions; both are in order.

    StepError where an element of a list lacks what tells it from others.
    """
    written: FieldSet = {}
    removed: FieldSet = {}
    zeros = form.zeros
    names = old.keys() | new.keys()
    for name in sorted(names | zeros.keys()) if zeros else sorted(names):
        if name in zeros:
            left, right = old.get(name, zeros[name]), new.get(name, zeros[name])
        else:
            left, right = old.get(name, MISSING), new.get(name, MISSING)
        _note("f:" + name, left, right, form.below(name), written, removed)
    return written, removed


def _note(  # noqa: PLR0917 - hot: keywords cost
    step: str, left: Any, right: Any, form: Form, written: FieldSet, removed: FieldSet
) -> None:
    if left is right or left == right:
        return
    if left is MISSING:
        written[step] = created(right, form)
    elif right is MISSING:
        removed[step] = created(left, form)
    else:
        _differ(step, left, right, form, written, removed)


def _differ(  # noqa: PLR0917 - as `_note`
    step: str, left: Any, right: Any, form: Form, written: FieldSet, removed: FieldSet
) -> None:
    """Note the differences between two values that both exist, though one may be null."""
    kind = form.seen(right if right is not None else left)
    shape = dict if kind == "fields" else list
    if (
        kind in {"scalar", "atomic"}
        or not (left or right)
        or not isinstance(left, (shape, type(None)))
        or not isinstance(right, (shape, type(None)))
    ):
        written[step] = {}
        return
    if kind == "fields":
        more, less = compared(left or {}, right or {}, form)
    else:
        more, less = _compared_lists(list(left or ()), list(right or ()), form)
    if more:
        written[step] = more
    if less:
        removed[step] = less


def _compared_lists(
    old: Sequence[Any], new: Sequence[Any], form: Form
) -> tuple[FieldSet, FieldSet]:
    written: FieldSet = {}
    removed: FieldSet = {}
    before, after = _strict_steps(old, form), _strict_steps(new, form)
    element = form.element
    for step in sorted(before.keys() | after.keys()):
        left, right = before.get(step, ()), after.get(step, ())
        if len(left) <= 1 and len(right) <= 1:
            one = left[0] if left else MISSING
            other = right[0] if right else MISSING
            _note(step, one, other, element, written, removed)
        elif left != right:
            # Elements that cannot be told apart are owned together.
            (written if len(right) > 1 else removed)[step] = {}
            if len(right) == 1:
                written[step] = created(right[0], element)
    return written, removed


def _strict_steps(items: Sequence[Any], form: Form) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(form.step(item), []).append(item)
    return found


def _steps(items: Sequence[Any], form: Form) -> list[tuple[str, list[Any]]]:
    """Return the elements of a list by their steps; elements without a step are dropped."""
    found: dict[str, list[Any]] = {}
    for item in items:
        try:
            found.setdefault(form.step(item), []).append(item)
        except StepError:
            continue
    return list(found.items())


def field_set(value: Any, form: Form) -> FieldSet:
    """Return the fields that the sender of exactly this mapping owns."""
    found: FieldSet = {}
    for name in sorted(value):
        item = value[name]
        node = _owned(item, form.below(name))
        if node is None:
            if item is None:
                found["f:" + name] = {}
        elif node and not form.names(name):
            found["f:" + name] = {SELF: {}, **node}
        else:
            found["f:" + name] = node
    return found


def _owned(value: Any, form: Form) -> FieldSet | None:
    """Return the fields below a value; empty if the value is owned as a whole."""
    kind = form.seen(value)
    if kind in {"scalar", "atomic"}:
        return {}
    if kind == "fields":
        if not isinstance(value, dict):
            return None
        # A map of only empty lists has no owner; an empty map has one.
        return (field_set(value, form) or None) if value else {}
    if not isinstance(value, list) or not value:
        return None
    node: FieldSet = {}
    for step, items in _steps(value, form):
        below = _owned(items[0], form.element) if len(items) == 1 else {}
        node[step] = {SELF: {}, **below} if below else {}
    return node


def with_named(fields: FieldSet, form: Form) -> FieldSet:
    """Return the set with each struct field on the path to a member added as a member."""
    found: FieldSet = {}
    for step, node in fields.items():
        if not node or step == SELF:
            found[step] = node
        elif step.startswith("f:"):
            name = step[2:]
            below = with_named(node, form.below(name))
            found[step] = {SELF: {}, **below} if form.names(name) else below
        else:
            found[step] = with_named(node, form.element)
    return found


# --- Merging and removing ---------------------------------------------------------------


def merged(live: Any, config: Any, form: Form) -> Any:
    """Return the live value merged with the config."""
    if live is MISSING or live is None:
        return _without_nulls(config)
    kind = form.seen(config)
    if kind == "fields" and isinstance(live, dict) and (config is None or isinstance(config, dict)):
        found = dict(live)
        for name, value in (config or {}).items():
            if value is None and form.below(name).seen(live.get(name)) in {"scalar", "atomic"}:
                found.pop(name, None)
            elif value is not None:
                found[name] = merged(live.get(name, MISSING), value, form.below(name))
        return found
    if kind in {"map", "set"} and isinstance(live, list) and isinstance(config, (list, type(None))):
        return _merged_lists(live, config or [], form) if live or config else config
    return config


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _merged_lists(live: list[Any], config: list[Any], form: Form) -> list[Any]:
    """Return both lists' elements: the config's in its order, live ones where they were.

    Walks both lists side by side: a live element that the config lacks is taken when it comes
    up, one that both have waits for its turn in the config.
    """
    ours = {step: items[0] for step, items in _steps(config, form)}
    theirs = _told_apart(live, form)
    counts = Counter(step for step, _ in theirs)
    # Elements that cannot be told apart are not merged with.
    known = {step: item for step, item in theirs if counts[step] == 1}
    wanted = list(ours)
    shared = deque(step for step in wanted if step in counts)
    element = form.element
    result: list[Any] = []
    done: set[str] = set()
    at = turn = 0
    while at < len(theirs) or turn < len(wanted):
        if at < len(theirs):
            step, item = theirs[at]
            if turn < len(wanted) and step == wanted[turn]:
                at += 1
            elif step not in ours:
                result.append(item)
                at += 1
                continue
            elif step in done or (turn < len(wanted) and shared and shared[0] != step):
                # It was taken at its place in the config, or will be.
                at += 1
                continue
        if turn < len(wanted):
            step = wanted[turn]
            result.append(merged(known.get(step, MISSING), ours[step], element))
            done.add(step)
            turn += 1
            if shared and shared[0] == step:
                shared.popleft()
    return result


def _told_apart(items: list[Any], form: Form) -> list[tuple[str, Any]]:
    found = []
    for item in items:
        try:
            found.append((form.step(item), item))
        except StepError:
            continue
    return found


def reduced(value: Any, fields: FieldSet, form: Form) -> Any:
    """Return the value without the members of a set; None if nothing is left.

    What loses only things below it stays, if only as an empty map or list.
    """
    kind = form.seen(value)
    if kind == "fields" and isinstance(value, dict):
        left: dict[str, Any] = {}
        went_below = False
        for name, item in value.items():
            node = fields.get("f:" + name)
            if node is None:
                left[name] = item
            elif node and SELF not in node:
                went_below = True
                left[name] = _kept(item, reduced(item, node, form.below(name)))
        return left if left or went_below else None
    if kind in {"map", "set"} and isinstance(value, list):
        return _reduced_list(value, fields, form)
    return None if kind == "atomic" else value


def _reduced_list(items: list[Any], fields: FieldSet, form: Form) -> list[Any] | None:
    left = []
    went_below = False
    for item in items:
        try:
            node = fields.get(form.step(item))
        except StepError:
            node = None
        if node is None:
            left.append(item)
        elif node and SELF not in node:
            went_below = True
            left.append(_kept(item, reduced(item, node, form.element)))
    return left if left or went_below else None


def _kept(before: Any, after: Any) -> Any:
    if after is not None:
        return after
    return {} if isinstance(before, dict) else [] if isinstance(before, list) else None


# --- Checking ---------------------------------------------------------------------------


def misfits(value: Any, form: Form, path: str = "") -> Iterator[str]:
    """Yield a sentence for each part of a config that its schema does not allow."""
    kind = form.seen(value)
    if value is None:
        return
    if kind == "scalar":
        if why := _scalar_misfit(value, form):
            yield f"{path}: {why}"
    elif kind == "fields" and not isinstance(value, dict):
        yield f"{path}: expected map, got {shown_value(value)}"
    elif kind in {"map", "set"}:
        if not isinstance(value, list):
            yield f"{path}: expected list, got {shown_value(value)}"
            return
        yield from _list_misfits(value, form, path)
    elif kind == "atomic" and form.holds not in {"", type(value).__name__}:
        wanted = "map" if form.holds == "dict" else "list"
        yield f"{path}: expected {wanted}, got {shown_value(value)}"
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from misfits(item, form.element, f"{path}[{at}]")
    elif isinstance(value, dict):
        for name in sorted(value):
            if not form.knows(name):
                yield f"{path}.{name}: field not declared in schema"
            else:
                yield from misfits(value[name], form.below(name), f"{path}.{name}")


def _scalar_misfit(value: Any, form: Form) -> str:
    """Return the error of a value that does not match a scalar type; empty if it does."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if form.scalar == "string" and not isinstance(value, str):
        shown = _in_go(value)
        return f"expected string, got &value.valueUnstructured{{Value:{shown}}}"
    if form.scalar == "numeric" and not is_number:
        return f"expected numeric (int or float), got {GO_TYPES.get(type(value), 'string')}"
    if form.scalar == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got {shown_value(value)}"
    return ""


def _list_misfits(items: list[Any], form: Form, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for at, item in enumerate(items):
        try:
            step = form.step(item)
        except StepError as error:
            yield f"{path}: element {at}: {error}"
            return
        if step in seen:
            yield f"{path}: duplicate entries for key {shown(step)}"
        seen.add(step)
        yield from misfits(item, form.element, path + shown(step))


def shown_value(value: Any) -> str:
    """Return a value approximately as Go prints it."""
    return f"&{{{go_value(value)}}}"


def _in_go(value: Any) -> str:
    """Return a value with its type where Go's `%#v` shows it: of maps and lists."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        items = ", ".join(f"{go_quoted(key)}:{_literal(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_literal, value))}}}"
    return str(value)


def _literal(value: Any) -> str:
    if value is None:
        return "interface {}(nil)"
    return go_quoted(value) if isinstance(value, str) else _in_go(value)

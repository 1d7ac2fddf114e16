"""What there is instead of what is asked for, line by line: the second half of a page."""

from collections.abc import Iterator, Sequence
from typing import Final

from dralab.explanation.causes import (
    Asked,
    Cause,
    Competing,
    FailingSelector,
    GangTooLarge,
    Lacking,
    NoAlternative,
    NodesUnfit,
    NoSuchDevice,
    NothingThere,
    NotTogether,
    Offered,
    Refused,
    Together,
    TooFew,
    Unmatched,
)
from dralab.explanation.conditions import Condition
from dralab.explanation.names import (
    counted,
    device_name,
    joined,
    listed,
    of_class,
    plural,
    short_path,
    taint_text,
)
from dralab.explanation.words import Line, condition_text, headline, last
from dralab.scheduling.reasons import unavailable

BLOCKED: Final = {
    "in-use": "in use", "taint": "tainted", "capacity": "without the room",
    "counters": "blocked by other parts", "groups": "of another group",
}  # fmt: skip
"""What keeps a device that suits from being had."""


def there(cause: Cause) -> Iterator[Line]:
    """Yield what there is instead."""
    match cause:
        case NoAlternative():
            for each in cause.causes:
                asked = getattr(each, "asked", None)
                name = asked.request.partition("/")[2] if isinstance(asked, Asked) else ""
                yield f"{name}: {headline(each)}", each.code
        case NoSuchDevice():
            yield _instead(cause), listed(cause.examples)
        case NotTogether():
            yield from _met(cause)
        case FailingSelector():
            yield from _failed(cause)
        case Lacking():
            yield from _lacking(cause)
        case TooFew():
            yield from _few(cause)
        case Unmatched():
            yield from _values(cause)
        case Competing():
            yield _compete(cause)
        case Together():
            yield from ((text, "") for text in conflict_lines(cause.conflict))
        case NodesUnfit() | NothingThere():
            yield from _nodes(cause)
        case GangTooLarge():
            yield from _gang(cause)
        case Refused() if cause.missing:
            known = listed(cause.known, 6)
            text = f"{plural(cause.missing)} {known}" if known else f"no {plural(cause.missing)}"
            if cause.elsewhere:
                spaces = f"namespace {listed(cause.elsewhere, 3)}"
                text = (
                    f"one of that name in {spaces}; a pod can use only those of its own namespace"
                )
            yield text, ""
        case _:
            return


# --- what there is


def _devices(total: int, asked: Asked, nodes: int) -> str:
    return f"{of_class(total, asked.class_name)} on {counted(nodes, 'node')}"


def _instead(cause: NoSuchDevice) -> str:
    base = (
        _devices(cause.total, cause.asked, cause.nodes)
        if cause.of_class
        else f"{counted(cause.total, 'device')} on {counted(cause.nodes, 'node')}"
    )
    comparison = cause.condition.comparison
    if comparison is None:
        return base
    name = short_path(comparison.path)
    if cause.best:
        word = "largest" if comparison.operator in {">", ">="} else "smallest"
        if cause.total == 1:
            return f"{base}, with {name} {cause.best}"
        return f"{base}, the {word} {name} is {cause.best}"
    if cause.values:
        return f"{base}; {name}: {offered(cause.values)}"
    if cause.known:
        return f"{base} with {listed(sorted(cause.known), 6)}"
    return base


def offered(values: Sequence[Offered], most: int = 6) -> str:
    """Return values with the number of their devices."""
    return listed([f"{each.value} ({each.devices})" for each in values], most)


def _met(cause: NotTogether) -> Iterator[Line]:
    yield _devices(cause.total, cause.asked, cause.nodes), ""
    for condition, count in cause.met:
        yield f"  {count} with {condition_text(condition)}", ""


def _gang(cause: GangTooLarge) -> Iterator[Line]:
    if cause.failing:
        yield f"for {cause.failing}: {headline(cause.cause) if cause.cause else cause.why}", ""
    if cause.cause is not None:
        yield from there(cause.cause)


def _failed(cause: FailingSelector) -> Iterator[Line]:
    yield _failure(cause)
    if cause.code == "DRA006":
        yield "one device on which an expression fails stops the search for the pod", ""


def _failure(cause: FailingSelector) -> Line:
    if cause.known and cause.code == "DRA023":
        domains = dict.fromkeys(name.partition("/")[0] for name in cause.known)
        return f"{counted(cause.total, 'device')}, with domain {listed(domains, 4)}", cause.example
    if cause.lacking and cause.code == "DRA006":
        rest = cause.total - cause.devices
        return f"{counted(rest, 'device')} with {cause.lacking[-1]}, {cause.devices} without", (
            cause.example
        )
    if cause.known and cause.lacking:
        names = [last(name) for name in cause.known if name.startswith(f"{cause.lacking[1]}/")]
        every = listed(names or [last(name) for name in cause.known], 8)
        return f"{counted(cause.total, 'device')}, which have: {every}", cause.example
    return f"on {cause.example}: {cause.message}", ""


def _lacking(cause: Lacking) -> Iterator[Line]:
    base = _devices(cause.total, cause.asked, cause.nodes)
    if cause.best:
        yield f"{base}, the largest offers {cause.best} {cause.name}", listed(cause.examples)
    elif cause.known:
        yield f"{base}, which have: {listed(_told_names(cause), 8)}", ""
    else:
        yield base, listed(cause.examples)


def _told_names(cause: Lacking) -> list[str]:
    """Return names without domains, unless one would look like the name that is lacking."""
    short = [last(name) for name in cause.known]
    return list(cause.known) if last(cause.name) in short else short


def _few(cause: TooFew) -> Iterator[Line]:
    text = f"{counted(cause.total, 'suitable device')} on {counted(cause.nodes, 'node')}"
    if cause.code == "DRA031":
        yield f"{text}, at most {cause.most} on one node", ""
        if cause.name:
            yield f"nearest: {cause.name} has {cause.offered} of the {cause.needed} needed", ""
        return
    if cause.asked.count != 1:
        text += f", {cause.free} free, at most {cause.most_free} on one node"
    what = "their room held" if cause.code in {"DRA038", "DRA039"} else "held"
    held = f"{what} by {listed(cause.holders)}" if cause.holders else ""
    if len(cause.blocked) == 1:
        yield f"{text}, {held}" if held else text, ""
    else:
        yield text, ""
        told = [f"{count} {BLOCKED[why]}" for why, count in cause.blocked.items()]
        yield f"{joined(told)}; {held}" if held else joined(told), ""
    if len(cause.taints) > 1:
        yield "taints: " + listed([f"{taint} ({count})" for taint, count in cause.taints], 4), ""


def _values(cause: Unmatched) -> Iterator[Line]:
    name = last(cause.constraint.name)
    held = cause.code == "DRA033"
    if cause.constraint.kind == "total":
        free = " free" if held else ""
        yield f"at most {cause.best} {name}{free} on one node", cause.where
        return
    text = of_class(cause.free if held else cause.total, cause.asked[0].class_name)
    text += " free" if held else ""
    rule = f"with the same {name}" if cause.constraint.kind == "match" else f"with different {name}"
    shown = offered(cause.values) if cause.values else "none"
    yield f"{text}, at most {cause.most} {rule} on one node", f"{cause.where}: {name} {shown}"
    if held and cause.holders:
        yield f"the others are held by {listed(cause.holders)}", ""


def _compete(cause: Competing) -> Line:
    if cause.code == "DRA037":
        return (
            f"counter {cause.counter} has {cause.offered} of the {cause.needed} needed at least",
            cause.where,
        )
    names = joined([each.request for each in cause.asked])
    suit = "suits" if cause.devices == 1 else "suit"
    devices = counted(cause.devices, "device")
    return f"{devices} {suit} {names}, which want {cause.wanted}", cause.where


def _nodes(cause: NodesUnfit | NothingThere) -> Iterator[Line]:
    if isinstance(cause, NothingThere):
        if cause.code == "DRA008":
            yield "its driver is replacing it; look at the driver's log if this lasts", ""
        return
    yield from ((fact, "") for fact in cause.facts)
    # The sentence that kube-scheduler writes into events.
    yield unavailable(cause.total, cause.reasons), ""


def conflict_lines(conflict: Sequence[Condition]) -> Iterator[str]:
    """Yield the parts of a minimal conflict; devices in use are told as one."""
    held = [device for item in conflict if item.kind == "held" for device in item.devices]
    holders = sorted({name for item in conflict for name in item.holders})
    if held:
        by = f" by {listed(holders)}" if holders else ""
        names = listed([device_name(device) for device in held])
        yield f"{counted(len(held), 'device')} in use{by}: {names}"
    for item in conflict:
        if text := _condition(item):
            yield text


def _condition(item: Condition) -> str:
    request = f"request {item.request}"
    match item.kind:
        case "taint":
            return f"{request} does not tolerate {taint_text(item.taint) if item.taint else ''}"
        case "count":
            return f"{request} wants {counted(item.number, 'device')}"
        case "capacity":
            return f"{request} asks for an amount of {item.text}"
        case "constraint":
            return f"claim {item.claim}: {item.text}"
        case "selector" | "class-selector":
            owner = request if item.kind == "selector" else f"class {item.request}"
            return f"{owner}: {' '.join(item.text.split())}"
        case _:
            return ""

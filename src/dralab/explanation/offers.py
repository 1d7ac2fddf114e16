"""What there is instead of what is asked for, line by line; and what groups of nodes lack."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dralab.allocation.facts import (
    BadRequest,
    ConstraintOffers,
    CounterShortage,
    Excluded,
    Fact,
    PoolUnusable,
    RequestFacts,
    Shortage,
    TooManyDevices,
)
from dralab.explanation import causes
from dralab.explanation.conditions import Condition
from dralab.explanation.explain import NodeGroup
from dralab.explanation.names import (
    amount,
    counted,
    device_name,
    joined,
    listed,
    of_class,
    plural,
    short_path,
    shown_value,
    taint_text,
)
from dralab.explanation.words import Line, condition_text, headline, last
from dralab.scheduling.reasons import unavailable

BLOCKED: Final = {
    "in-use": "in use", "taint": "tainted", "capacity": "without the room",
    "counters": "blocked by other parts", "groups": "of another group",
}  # fmt: skip
"""What keeps a device that suits from being had."""


def there(cause: causes.Cause) -> Iterator[Line]:
    """Yield what there is instead."""
    match cause:
        case causes.NoAlternative():
            for each in cause.causes:
                asked = getattr(each, "asked", None)
                name = asked.request.partition("/")[2] if isinstance(asked, causes.Asked) else ""
                yield f"{name}: {headline(each)}", each.code
        case causes.NoSuchDevice():
            yield _instead(cause), listed(cause.examples)
        case causes.NotTogether():
            yield from _met(cause)
        case causes.FailingSelector():
            yield from _failed(cause)
        case causes.Lacking():
            yield from _lacking(cause)
        case causes.TooFew():
            yield from _few(cause)
        case causes.Unmatched():
            yield from _values(cause)
        case causes.Competing():
            yield _compete(cause)
        case causes.Together():
            yield from ((text, "") for text in conflict_lines(cause.conflict))
        case causes.NodesUnfit() | causes.NothingThere():
            yield from _nodes(cause)
        case causes.GangTooLarge():
            yield from _gang(cause)
        case causes.Refused() if cause.missing:
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


def _devices(total: int, asked: causes.Asked, nodes: int) -> str:
    return f"{of_class(total, asked.class_name)} on {counted(nodes, 'node')}"


def _instead(cause: causes.NoSuchDevice) -> str:
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


def offered(values: Sequence[causes.Offered], most: int = 6) -> str:
    """Return values with the number of their devices."""
    return listed([f"{each.value} ({each.devices})" for each in values], most)


def _met(cause: causes.NotTogether) -> Iterator[Line]:
    yield _devices(cause.total, cause.asked, cause.nodes), ""
    for condition, count in cause.met:
        yield f"  {count} with {condition_text(condition)}", ""


def _gang(cause: causes.GangTooLarge) -> Iterator[Line]:
    if cause.failing:
        yield f"for {cause.failing}: {headline(cause.cause) if cause.cause else cause.why}", ""
    if cause.cause is not None:
        yield from there(cause.cause)


def _failed(cause: causes.FailingSelector) -> Iterator[Line]:
    yield _failure(cause)
    if cause.code == "DRA006":
        yield "one device on which an expression fails stops the search for the pod", ""


def _failure(cause: causes.FailingSelector) -> Line:
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


def _lacking(cause: causes.Lacking) -> Iterator[Line]:
    base = _devices(cause.total, cause.asked, cause.nodes)
    if cause.best:
        yield f"{base}, the largest offers {cause.best} {cause.name}", listed(cause.examples)
    elif cause.known:
        yield f"{base}, which have: {listed(_told_names(cause), 8)}", ""
    else:
        yield base, listed(cause.examples)


def _told_names(cause: causes.Lacking) -> list[str]:
    """Return names without domains, unless one would look like the name that is lacking."""
    short = [last(name) for name in cause.known]
    return list(cause.known) if last(cause.name) in short else short


def _few(cause: causes.TooFew) -> Iterator[Line]:
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


def _values(cause: causes.Unmatched) -> Iterator[Line]:
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


def _compete(cause: causes.Competing) -> Line:
    if cause.code == "DRA037":
        return (
            f"counter {cause.counter} has {cause.offered} of the {cause.needed} needed at least",
            cause.where,
        )
    names = joined([each.request for each in cause.asked])
    suit = "suits" if cause.devices == 1 else "suit"
    devices = counted(cause.devices, "device")
    return f"{devices} {suit} {names}, which want {cause.wanted}", cause.where


def _nodes(cause: causes.NodesUnfit | causes.NothingThere) -> Iterator[Line]:
    if isinstance(cause, causes.NothingThere):
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


def group_lines(groups: Iterable[NodeGroup]) -> Iterator[str]:
    """Yield every group of nodes with all of its facts."""
    for group in groups:
        if len(group.nodes) == 1:
            yield f"Node {group.nodes[0]}:"
        else:
            yield f"{len(group.nodes)} nodes ({', '.join(group.nodes)}):"
        for fact in group.facts:
            yield from (f"  {line}" for line in fact_lines(fact))


def fact_lines(fact: Fact) -> Iterator[str]:
    """Yield a fact of one node."""
    match fact:
        case PoolUnusable():
            detail = f": {fact.detail}" if fact.detail else ""
            yield f"pool {fact.driver}/{fact.pool} is {fact.why}{detail}"
        case BadRequest():
            yield fact.text
        case RequestFacts():
            yield (
                f"request {fact.request} of {fact.claim} wants {counted(fact.wanted, 'device')}: "
                f"{fact.eligible} of {fact.devices} could serve it"
            )
            for item in fact.excluded:
                yield f"  {left_out(item)}"
        case Shortage():
            names = ", ".join(request for _, request in fact.requests)
            yield (
                f"requests {names} together want {counted(fact.wanted, 'device')}, and "
                f"{fact.eligible} could serve them"
            )
        case CounterShortage():
            yield (
                f"counter {fact.counter_set}/{fact.counter} of pool {fact.driver}/{fact.pool} has "
                f"{amount(fact.left)} of the {amount(fact.least)} needed at least"
            )
        case ConstraintOffers():
            rule = "with the same" if fact.kind == "match" else "that differ in"
            values = [
                f"{'none' if value is None else shown_value(value)} ({count})"
                for value, count in fact.offers
            ]
            offers = listed(values, 8) or "nothing"
            yield f"{counted(fact.wanted, 'device')} {rule} {fact.name}: there are {offers}"
        case TooManyDevices():
            yield f"claim {fact.claim} wants more than {fact.limit} devices"


def left_out(item: Excluded) -> str:
    """Return how many devices a reason leaves out, and what the reason is."""
    held = f" (held by {listed(item.holders)})" if item.holders else ""
    match item.why:
        case "selector":
            text = f"not of {item.where} `{' '.join(item.detail.split())}`"
        case "error":
            text = f"for which {item.error}"
        case "in-use":
            text = f"in use by {listed(item.holders)}" if item.holders else "in use"
        case "node":
            text = "for other nodes"
        case "taint":
            text = f"with taint {taint_text(item.taint) if item.taint is not None else 'unknown'}"
        case "capacity" if not item.offered and not item.holders:
            text = f"without capacity {item.detail}"
        case "capacity":
            text = (
                f"where {item.detail} has {amount(item.offered)} of the {amount(item.needed)} "
                f"needed{held}"
            )
        case "counters":
            text = (
                f"for which counter {item.detail} has {amount(item.offered)} of the "
                f"{amount(item.needed)} needed{held}"
            )
        case "groups":
            text = f"that do not go together with others on {item.detail}{held}"
        case "attribute":
            text = f"without attribute {item.detail}"
        case _:
            text = f"with {item.detail}, which is switched off"
    return f"{item.count} {text}"

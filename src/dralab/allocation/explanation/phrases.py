"""Words for facts and conditions: short, countable, without the objects they are about."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dralab.allocation.explanation.conditions import Condition
from dralab.allocation.facts import (
    ConstraintOffers,
    CounterShortage,
    Excluded,
    RequestFacts,
    Shortage,
)
from dralab.allocation.problem import Attribute
from dralab.objects.device_taints import DeviceTaint
from dralab.values.quantity import Number, render

MOST_NAMES: Final = 3
UNSUITABLE: Final = frozenset({"selector", "error", "node", "feature", "attribute"})
"""Reasons for which a device is none of those that were meant; others could be lifted."""


def listed(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Return a few names and how many more there are.

    >>> listed(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    every = list(names)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])} and {len(every) - most} more"


def devices(count: int) -> str:
    """Return a number of devices.

    >>> devices(1), devices(2)
    ('1 device', '2 devices')
    """
    return "1 device" if count == 1 else f"{count} devices"


def amount(number: Number) -> str:
    """Return a number as a person would write it.

    >>> amount(40 * 2**30), amount(1500)
    ('40Gi', '1500')
    """
    if number.denominator == 1 and number >= 1 << 20 and number % (1 << 20) == 0:
        return render(number, "BinarySI")
    return str(number) if number.denominator == 1 else render(number)


def shortened(expression: str, most: int) -> str:
    """Return an expression on one line, its end left out where it is long."""
    line = " ".join(expression.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def tainted(taint: DeviceTaint) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def left_out(item: Excluded, most: int = 80) -> str:
    """Return how many devices a reason leaves out, and what the reason is."""
    held = f" (held by {listed(item.holders)})" if item.holders else ""
    match item.why:
        case "selector":
            text = f"not of {item.where} `{shortened(item.detail, most)}`"
        case "error":
            text = f"for which {shortened(item.error, 3 * most)}"
        case "in-use":
            text = f"in use by {listed(item.holders)}" if item.holders else "in use"
        case "node":
            text = "for other nodes"
        case "taint":
            text = f"with taint {tainted(item.taint) if item.taint is not None else 'unknown'}"
        case "capacity" if not item.offered and not item.holders:
            text = f"without capacity {item.detail}"
        case "capacity":
            text = (
                f"with at most {amount(item.offered)} of the {amount(item.needed)} {item.detail} "
                f"asked{held}"
            )
        case "counters":
            short, rest = amount(item.needed - item.offered), amount(item.offered)
            text = f"for which counter {item.detail} is short by {short} ({rest} left){held}"
        case "groups":
            text = f"that do not go together with others on {item.detail}{held}"
        case "attribute":
            text = f"without attribute {item.detail}"
        case _:
            text = f"with {item.detail}, which is switched off"
    return f"{item.count} {text}"


def short_request(fact: RequestFacts, most: int = 80) -> str:
    """Return what is missing for one request; begins with `{have}`, to be filled in."""
    if not fact.devices:
        return "{have} no devices"
    lifted = [item for item in fact.excluded if item.why not in UNSUITABLE]
    refused = [item for item in fact.excluded if item.why in UNSUITABLE]
    suitable = fact.eligible + sum(item.count for item in lifted)
    if not suitable:
        if len(refused) == 1 and refused[0].why == "selector":
            shown = shortened(refused[0].detail, most)
            return f"{{have}} no device for request {fact.request} with {_quoted(shown)}"
        shown = "; ".join(escaped(left_out(item, most)) for item in refused)
        return f"{{have}} no device for request {fact.request}: {shown}"
    shown = ", ".join(escaped(left_out(item, most)) for item in lifted)
    if suitable < fact.wanted:
        others = f": {shown}" if shown else ""
        return (
            f"{{have}} only {suitable} of {fact.wanted} devices for request {fact.request}{others}"
        )
    if not fact.eligible:
        return f"{{have}} no device left for request {fact.request}: {shown}"
    return (
        f"{{have}} only {fact.eligible} of {fact.wanted} devices left for request {fact.request}: "
        f"{shown}"
    )


def short_shortage(fact: Shortage) -> str:
    """Return which requests compete for too few devices."""
    names = listed([request for _, request in fact.requests], 4)
    few = devices(fact.eligible)
    return f"{{have}} only {few} for requests {names}, which want {fact.wanted}"


def short_counters(fact: CounterShortage) -> str:
    """Return which counter does not last."""
    return (
        f"{{have}} {amount(fact.left)} of counter {fact.counter_set}/{fact.counter} left in pool "
        f"{fact.driver}/{fact.pool}, and {amount(fact.least)} are needed at least"
    )


def short_offers(fact: ConstraintOffers) -> str:
    """Return which values are on offer for a constraint."""
    shown = listed([f"{_value(value)} x{count}" for value, count in fact.offers], 4)
    if fact.kind == "match":
        return f"{{have}} no {devices(fact.wanted)} with the same {fact.name} (on offer: {shown})"
    return f"{{have}} no {devices(fact.wanted)} that differ in {fact.name} (on offer: {shown})"


def impossible(fact: ConstraintOffers) -> bool:
    """Return whether the values on offer alone rule a constraint out; lists may still agree."""
    known = [(value, count) for value, count in fact.offers if value is not None]
    if any(value.listed for value, _ in known):
        return False
    if fact.kind == "match":
        return max((count for _, count in known), default=0) < fact.wanted
    return fact.kind == "distinct" and len(known) < fact.wanted


def needed(condition: Condition) -> str:
    """Return a condition as a part of a conflict."""
    request = f"request {condition.request}"
    match condition.kind:
        case "held":
            by = f" by {listed(condition.holders)}" if condition.holders else ""
            return f"{listed([str(device) for device in condition.devices])} in use{by}"
        case "taint":
            return f"{request} does not tolerate {_taint(condition)}"
        case "count":
            return f"{request} wants {devices(condition.number)}"
        case "capacity":
            return f"{request} asks for an amount of {condition.text}"
        case "constraint":
            return f"claim {condition.claim} wants {condition.text}"
        case "selector":
            return f"{request} wants `{shortened(condition.text, 200)}`"
        case "class-selector":
            return f"class {condition.request} wants `{shortened(condition.text, 200)}`"
        case _:
            return f"claim {condition.claim} has {request}"


def needed_together(conditions: Sequence[Condition]) -> Iterator[str]:
    """Yield the parts of a conflict; devices in use are told as one part."""
    held = [condition for condition in conditions if condition.kind == "held"]
    if len(held) > 1:
        names = [str(device) for condition in held for device in condition.devices]
        holders = sorted({name for condition in held for name in condition.holders})
        by = f" by {listed(holders)}" if holders else ""
        yield f"{devices(len(names))} in use{by}: {listed(names, 4)}"
    else:
        yield from map(needed, held)
    yield from (needed(condition) for condition in conditions if condition.kind != "held")


def helps(condition: Condition, fits: Mapping[Condition, int], most: int = 80) -> str:
    """Return what would have to change, to follow "it would fit if"."""
    request = f"request {condition.request}"
    match condition.kind:
        case "held":
            claims = "claims" if len(condition.holders) > 1 else "claim"
            who = f"{claims} {listed(condition.holders)}" if condition.holders else "its holder"
            return f"{who} released {listed([str(device) for device in condition.devices], 2)}"
        case "taint":
            return f"{request} tolerated {_taint(condition)}"
        case "count":
            count = fits.get(condition)
            few = f"at most {devices(count)}" if count else "fewer devices"
            return f"{request} wanted {few}"
        case "capacity":
            return f"{request} asked for less {condition.text}"
        case "constraint":
            return f"claim {condition.claim} did not want {condition.text}"
        case "selector":
            return f"{request} did not want `{shortened(condition.text, most)}`"
        case "class-selector":
            return f"class {condition.request} did not want `{shortened(condition.text, most)}`"
        case _:
            return f"claim {condition.claim} went without {request}"


def remedy(found: Sequence[Condition], fits: Mapping[Condition, int], most: int = 80) -> str:
    """Return all changes of one remedy as one phrase; releases are told together."""
    held = [condition for condition in found if condition.kind == "held"]
    parts = [helps(condition, fits, most) for condition in found if condition.kind != "held"]
    if len(held) > 1:
        holders = sorted({name for condition in held for name in condition.holders})
        names = [str(device) for condition in held for device in condition.devices]
        word = "claims" if len(holders) > 1 else "claim"
        who = f"{word} {listed(holders)}" if holders else "others"
        parts.insert(0, f"{who} released {listed(names, 2)}")
    else:
        parts = [helps(condition, fits, most) for condition in found]
    return " and ".join(parts)


def _taint(condition: Condition) -> str:
    return f"taint {tainted(condition.taint)}" if condition.taint is not None else "a taint"


def _value(value: Attribute | None) -> str:
    if value is None:
        return "none"
    shown = [
        "true" if item is True else "false" if item is False else str(item) for item in value.values
    ]
    return f"[{', '.join(shown)}]" if value.listed else shown[0] if shown else "empty"


def _quoted(expression: str) -> str:
    return escaped(f"`{expression}`")


def escaped(text: str) -> str:
    """Return a text in which `str.format` fills in nothing."""
    return text.replace("{", "{{").replace("}", "}}")

"""Conditions of a class or a request that no device meets, and the nearest values."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from dralab.allocation.problem import (
    Claim,
    Constraint,
    Device,
    DeviceSelector,
    DeviceSelectorError,
    OlderSelector,
)
from dralab.allocation.search.alternatives import Alternative, LocatedSelector
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.cel import environment
from dralab.cel.conjuncts import OWN_DOMAIN, Comparison, Conjunct, Span, conjuncts
from dralab.explanation.alike_nodes import DeviceKind
from dralab.explanation.causes import (
    Asked,
    ConditionText,
    FailingSelector,
    MarkedField,
    NoSuchDevice,
    NotTogether,
    Offered,
)
from dralab.explanation.names import device_name, shown_value
from dralab.values.quantity import QuantityError
from dralab.values.quantity import parse as parse_quantity
from dralab.values.records import dataclass
from dralab.values.version import Version

MOST_EXAMPLES: Final = 3
THRESHOLDS: Final = frozenset({"<", "<=", ">", ">="})
COMPILER: Final = CelSelectorCompiler()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a selector: the selector it is of, and one that asks the part alone."""

    located: LocatedSelector
    conjunct: Conjunct
    selector: DeviceSelector

    @property
    def condition(self) -> ConditionText:
        """The part as data."""
        return ConditionText(text=self.conjunct.text, comparison=self.conjunct.comparison)

    def answer(self, device: Device) -> bool | None:
        """Return whether a device meets the part; None if the expression fails for it."""
        try:
            return self.selector.matches(device)
        except DeviceSelectorError:
            return None


def parts_of(conditions: Iterable[LocatedSelector]) -> list[Part]:
    """Return the parts of selectors; selectors that are not CEL are one part each."""
    found = []
    for located in conditions:
        selector = located.selector
        pieces = [_placed(selector, each) for each in conjuncts(selector.text, environment())]
        if len(pieces) == 1:
            found.append(Part(located, pieces[0], selector))
            continue
        found += [Part(located, piece, like(selector, piece.text)) for piece in pieces]
    return found


def like(selector: DeviceSelector, text: str) -> DeviceSelector:
    """Return a selector of another text, in the words of the generation of the first."""
    if isinstance(selector, OlderSelector):
        return selector.with_text(text)
    return COMPILER.selector(text)


def _placed(selector: DeviceSelector, conjunct: Conjunct) -> Conjunct:
    """Return a part of an older generation's selector with the path where devices have it."""
    comparison = conjunct.comparison
    if comparison is None or not isinstance(selector, OlderSelector):
        return conjunct
    path, name = selector.place(comparison.path), comparison.names[-1]
    names = (None, name, name) if len(path) == 3 else comparison.names
    return replace(conjunct, comparison=replace(comparison, path=path, names=names))


def selects(conditions: Iterable[LocatedSelector], device: Device) -> bool | None:
    """Return whether selectors accept a device; None if one fails before another rejects it."""
    for located in conditions:
        try:
            if not located.selector.matches(device):
                return False
        except DeviceSelectorError:
            return None
    return True


def in_claim(claim: str, field: str, text: str = "") -> MarkedField:
    """Return a place in a claim."""
    return MarkedField(owner=("claim", claim), field=field, text=text)


def compared(claim: str, rule: Constraint, number: int) -> MarkedField:
    """Return where a constraint names the attribute that it compares."""
    return in_claim(claim, constraint_field(rule, number, f".{rule.kind}Attribute"), rule.name)


def mark_of(
    alternative: Alternative, claim: str, located: LocatedSelector, span: Span | None
) -> MarkedField:
    """Return where a selector, or a piece of it, is written."""
    text = located.selector.text
    end = f"selectors[{located.position}].cel.expression"
    if located.where.startswith("class "):
        older = alternative.subrequest.written is not None
        name, path = alternative.device_class.name, "" if older else f"spec.{end}"
        return MarkedField(owner=("class", name), field=path, text=text, span=span)
    path = request_field(alternative, end)
    return MarkedField(owner=("claim", claim), field=path, text=text, span=span)


def request_field(alternative: Alternative, part: str) -> str:
    """Return where a claim holds a part of what an alternative asks for; empty if unknown."""
    if (written := alternative.subrequest.written) is not None:
        return written.get(part, "")
    request = f"spec.devices.requests[{alternative.request}]"
    if alternative.prioritized:
        return f"{request}.firstAvailable[{alternative.rank}].{part}"
    return f"{request}.exactly.{part}"


def whole_request(claim: Claim, number: int) -> str:
    """Return where a claim holds a request; empty if unknown."""
    ways = claim.requests[number].subrequests
    if ways and ways[0].written is not None:
        return ways[0].written.get("", "") if len(ways) == 1 else ""
    return f"spec.devices.requests[{number}]"


def constraint_field(rule: Constraint, number: int, part: str = "") -> str:
    """Return where a claim holds a constraint, or a part of it."""
    return f"spec.devices.constraints[{number}]{part}" if rule.written is None else rule.written


def of_class(alternative: Alternative, kinds: Sequence[DeviceKind]) -> list[DeviceKind]:
    """Return the devices that the class of a request accepts."""
    conditions = [each for each in alternative.conditions if each.where.startswith("class ")]
    return [kind for kind in kinds if selects(conditions, kind.device)]


def miss(
    alternative: Alternative,
    asked: Asked,
    kinds: Sequence[DeviceKind],
    order: Mapping[str, int],
) -> NoSuchDevice | NotTogether | FailingSelector | None:
    """Return which condition no device meets; None if some device meets all of them."""
    base = of_class(alternative, kinds)
    is_class = not base
    conditions = [
        each for each in alternative.conditions if each.where.startswith("class ") == is_class
    ]
    base = base or list(kinds)
    if any(selects(conditions, kind.device) for kind in base):
        return None
    parts = parts_of(conditions)
    met = [[kind for kind in base if part.answer(kind.device)] for part in parts]
    total, nodes = sum(kind.count for kind in base), nodes_of(base)
    never = [number for number, found in enumerate(met) if not found]
    if not never:
        return NotTogether(
            code="DRA026", asked=(asked,),
            marks=tuple(
                mark_of(alternative, asked.claim, part.located, part.conjunct.span)
                for part in parts
            ),
            met=tuple(
                (part.condition, sum(kind.count for kind in found))
                for part, found in zip(parts, met, strict=True)
            ),
            total=total, nodes=nodes,
        )  # fmt: skip
    part = parts[never[0]]
    if not is_class and (broken := failing(alternative, asked, [part], base, order)):
        return broken
    # Devices that meet everything else come nearest; the rest only where there are none.
    near = [
        kind
        for kind in base
        if all(other.answer(kind.device) for other in parts if other is not part)
    ]
    code, span, values, best = _judged(part.conjunct, near or base)
    examples = [kind for kind in near or base if not best or _has(part, kind, best)]
    return NoSuchDevice(
        code="DRA010" if is_class and code not in {"DRA023", "DRA024"} else code,
        asked=(asked,),
        mark=mark_of(alternative, asked.claim, part.located, span),
        condition=part.condition,
        total=total,
        nodes=nodes,
        of_class=not is_class,
        values=values,
        best=best,
        known=known_names("attributes", [kind.device for kind in base]) if code == "DRA022" else (),
        examples=_examples(examples, order),
    )


def failing(
    alternative: Alternative, asked: Asked, parts: Iterable[Part], kinds: Sequence[DeviceKind],
    order: Mapping[str, int],
) -> FailingSelector | None:  # fmt: skip
    """Return the first part of a request's expressions that fails for some device."""
    for part in parts:
        broken: list[DeviceKind] = []
        message = ""
        # What stands before the part would have said no first.
        earlier = alternative.conditions[: alternative.conditions.index(part.located)]
        reached = [kind for kind in kinds if selects(earlier, kind.device)]
        for kind in reached:
            try:
                part.selector.matches(kind.device)
            except DeviceSelectorError as error:
                broken.append(kind)
                message = message or error.message
        if not broken:
            continue
        lacking, known = _lacking(part.conjunct.comparison, part.selector, broken)
        total = sum(kind.count for kind in reached)
        count = sum(kind.count for kind in broken)
        everywhere = count == total
        code = "DRA022" if lacking and everywhere else "DRA006"
        if lacking and everywhere and len(lacking) > 1 and not _has_domain(lacking, reached):
            code = "DRA023"
        return FailingSelector(
            code=code, asked=(asked,),
            mark=mark_of(alternative, asked.claim, part.located, _name_span(part, lacking, code)),
            message=message, devices=count, total=total,
            example=device_name(*broken[0].examples(order, 1)[0]),
            lacking=lacking, known=known,
        )  # fmt: skip
    return None


def _lacking(
    comparison: Comparison | None, selector: DeviceSelector, broken: Sequence[DeviceKind]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the path that devices lack, and similar paths that they have."""
    paths = [comparison.path] if comparison else sorted(selector.reads)
    device = broken[0].device
    for path in paths:
        if len(path) == 3 and not _carries(device, path):
            return path, known_names(path[0], [kind.device for kind in broken])
    return (), ()


def known_names(sort: str, devices: Iterable[Device]) -> tuple[str, ...]:
    """Return the full names of the attributes or capacities of some devices."""
    found: dict[str, None] = {}
    for device in devices:
        found |= dict.fromkeys(device.attributes if sort == "attributes" else device.capacity)
    return tuple(found)


def _carries(device: Device, path: Sequence[str]) -> bool:
    held: Any = device.attributes if path[0] == "attributes" else device.capacity
    return full_name(device, path) in held


def full_name(device: Device, path: Sequence[str]) -> str:
    """Return the qualified name of what a device has at a path."""
    domain = device.driver if path[1] == OWN_DOMAIN else path[1]
    return f"{domain}/{path[2]}" if domain else path[2]


def _has_domain(path: Sequence[str], kinds: Iterable[DeviceKind]) -> bool:
    return path[1] in {OWN_DOMAIN, ""} or any(
        name.startswith(f"{path[1]}/")
        for kind in kinds
        for name in (*kind.device.attributes, *kind.device.capacity)
    )


def _name_span(part: Part, path: Sequence[str], code: str) -> Span | None:
    comparison = part.conjunct.comparison
    if comparison is None or comparison.path != tuple(path):
        return part.conjunct.span
    return comparison.names[1 if code == "DRA023" else 2] or part.conjunct.span


# --- what comes nearest


def _judged(
    conjunct: Conjunct, near: Sequence[DeviceKind]
) -> tuple[str, Span, tuple[Offered, ...], str]:
    """Return the code of an unmet part, its place, and the existing values."""
    comparison = conjunct.comparison
    if comparison is None:
        return "DRA025", conjunct.span, (), ""
    span = comparison.span or conjunct.span
    values = values_of(comparison.path, near)
    if comparison.path == ("driver",) and comparison.operator in {"==", "in"}:
        return "DRA024", span, values, ""
    if comparison.operator in THRESHOLDS and (best := best_of(comparison, near)):
        return "DRA014", span, values, best
    if not values and len(comparison.path) == 3:
        named = comparison.names[1 if not _has_domain(comparison.path, near) else 2]
        code = "DRA022" if _has_domain(comparison.path, near) else "DRA023"
        return code, named or span, values, ""
    if comparison.operator in {"==", "in", "includes"}:
        return "DRA021", span, values, ""
    return "DRA025", span, values, ""


def best_of(comparison: Comparison, kinds: Iterable[DeviceKind]) -> str:
    """Return the value that comes nearest to a threshold; empty if devices have none."""
    found = [
        (key, text)
        for kind in kinds
        if (text := value_at(kind.device, comparison.path)) is not None
        and (key := _ordered(text, comparison.constructor)) is not None
    ]
    return (max if comparison.operator in {">", ">="} else min)(found)[1] if found else ""


def values_of(path: Sequence[str], kinds: Iterable[DeviceKind]) -> tuple[Offered, ...]:
    """Return the values that devices have at a path, the most frequent first."""
    counts: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for kind in kinds:
        text = value_at(kind.device, path)
        if text is not None:
            counts[text] += kind.count
            free[text] += kind.free
    ordered = sorted(counts, key=lambda text: (-counts[text], text))
    return tuple(Offered(value=text, devices=counts[text], free=free[text]) for text in ordered)


def value_at(device: Device, path: Sequence[str]) -> str | None:
    """Return the value of a device at a path as its driver wrote it, None if it has none."""
    if tuple(path) == ("driver",):
        return device.driver
    if len(path) != 3:
        return None
    name = full_name(device, path)
    if path[0] == "capacity":
        item = device.capacity.get(name)
        return None if item is None else shown_value(item.text or item.value)
    attribute = device.attributes.get(name)
    return None if attribute is None else shown_value(attribute)


def _ordered(text: str, constructor: str) -> Any:
    """Return a value as it is compared; older generations write quantities as plain text."""
    readers: dict[str, tuple[Callable[[str], Any], ...]] = {
        "quantity": (parse_quantity,), "semver": (Version.parse,), "": (int, parse_quantity),
    }  # fmt: skip
    for read in readers.get(constructor, (int,)):
        try:
            return read(text)
        except (QuantityError, ValueError):
            continue
    return None


def _has(part: Part, kind: DeviceKind, best: str) -> bool:
    comparison = part.conjunct.comparison
    return comparison is not None and value_at(kind.device, comparison.path) == best


def _examples(kinds: Sequence[DeviceKind], order: Mapping[str, int]) -> tuple[str, ...]:
    found = (each for kind in kinds for each in kind.examples(order, MOST_EXAMPLES))
    return tuple(device_name(*each) for each in islice(found, MOST_EXAMPLES))


def nodes_of(kinds: Iterable[DeviceKind]) -> int:
    """Return the number of nodes with devices of some kinds."""
    classes = {id(each): each for kind in kinds for each, _ in kind.offers}
    return sum(len(each.nodes) for each in classes.values())

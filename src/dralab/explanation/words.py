"""The sentences of a diagnosis, without layout: headline, asks, offers and helps."""

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from dralab.allocation.problem import Constraint
from dralab.explanation.causes import (
    Asked,
    Cause,
    Competing,
    ConditionText,
    FailingSelector,
    GangTooLarge,
    Lacking,
    NoAlternative,
    NodesUnfit,
    NoSuchDevice,
    NothingThere,
    NotTogether,
    Refused,
    Together,
    TooFew,
    Unmatched,
)
from dralab.explanation.names import (
    SIGNS,
    counted,
    joined,
    listed,
    of_class,
    plural,
    short_path,
    shown_value,
)
from dralab.scheduling.reasons import (
    CLAIM_ELSEWHERE,
    CORDONED,
    INSUFFICIENT,
    TAINTED,
    TOO_MANY_PODS,
    UNSELECTED,
    Reason,
)

Line = tuple[str, str]
"""A line of the page: what it says, and an aside to its right."""
MOST_CONDITIONS = 3


def headline(cause: Cause) -> str:
    """Return the cause in a few words; it follows "NAME waits: "."""
    match cause:
        case Refused() | NothingThere() | NodesUnfit():
            return _not_devices(cause)
        case GangTooLarge():
            return _gang(cause)
        case FailingSelector():
            return _failing(cause)
        case NoSuchDevice():
            return _no_such_device(cause)
        case Lacking():
            return _lacking_what(cause)
        case TooFew():
            return _too_few(cause)
        case Unmatched():
            return _unmatched(cause)
        case NotTogether() | Competing() | Together() | NoAlternative():
            return _several(cause)
        case _:
            assert_never(cause)


def asks(cause: Cause) -> Iterator[Line]:
    """Yield what is asked for, one line for each request that matters."""
    match cause:
        case NoAlternative():
            for each in cause.causes:
                yield from asks(each)
        case Competing() | Together() | Unmatched():
            for asked in cause.asked:
                yield wanted(asked)
        case GangTooLarge() if cause.cause is not None:
            yield from asks(cause.cause)
        case FailingSelector() | NoSuchDevice() | NotTogether() | Lacking() | TooFew():
            first = cause.condition if isinstance(cause, NoSuchDevice) else None
            yield wanted(cause.asked, first)
        case _:
            return


# --- headlines


def _not_devices(cause: Refused | NothingThere | NodesUnfit) -> str:
    if isinstance(cause, Refused):
        return _refused(cause)
    if isinstance(cause, NodesUnfit):
        return _unfit(cause)
    undecided = "the search for devices was given up before it ended"
    return undecided if cause.code == "DRA060" else cause.detail


def _several(cause: NotTogether | Competing | Together | NoAlternative) -> str:
    match cause:
        case NotTogether():
            return f"no {one(cause.asked)} meets all of its {len(cause.met)} conditions"
        case Competing(code="DRA037"):
            if not cause.asked[0].count:
                return f"the devices of a node exclude each other: they share {cause.counter}"
            return f"the parts it asks for do not fit on one device together ({cause.counter})"
        case Competing():
            names = joined([each.request for each in cause.asked])
            return f"requests {names} compete for {counted(cause.devices, 'device')}"
        case Together():
            return "no node can meet all of its requests at once"
        case NoAlternative():
            return f"no alternative of request {cause.request} can be had"
        case _:
            assert_never(cause)


def _lacking_what(cause: Lacking) -> str:
    if cause.code == "DRA027":
        return f"no {one(cause.asked)} has attribute {cause.name}, which a constraint reads"
    have = f"offers {cause.needed} {cause.name}" if cause.best else f"has capacity {cause.name}"
    return f"no {one(cause.asked)} {have}"


def _refused(cause: Refused) -> str:
    match cause.code:
        case "DRA001":
            return f'there is no {cause.missing} "{cause.name}"'
        case "DRA002":
            return f'there is no DeviceClass "{cause.name}"'
        case "DRA005":
            return "an expression is not valid CEL"
        case _:
            return cause.text


def _failing(cause: FailingSelector) -> str:
    if cause.code == "DRA023":
        return f'no device has {_kinds_of(cause.lacking)} of domain "{cause.lacking[1]}"'
    if cause.code == "DRA022":
        word = "capacity" if cause.lacking[0] == "capacity" else "attribute"
        return f'no {one(cause.asked)} has {word} "{cause.lacking[2]}"'
    count = f"{cause.devices} of {counted(cause.total, 'device')}"
    if cause.lacking:
        return f"{count} have no {cause.lacking[-1]}, and the expression fails on them"
    return f"an expression fails on {count}"


def _no_such_device(cause: NoSuchDevice) -> str:
    comparison = cause.condition.comparison
    what = one(cause.asked) if cause.of_class else "device"
    if cause.code == "DRA010":
        return f'no device belongs to class "{cause.asked.class_name}"'
    if comparison is None:
        return f"no {what} meets a condition"
    name = short_path(comparison.path)
    if cause.code == "DRA022":
        word = "capacity" if comparison.path[0] == "capacity" else "attribute"
        return f'no {what} has {word} "{name}"'
    if cause.code == "DRA023":
        return f'no {what} has {_kinds_of(comparison.path)} of domain "{comparison.path[1]}"'
    if cause.code == "DRA024":
        return f'no device has driver "{_values_text(comparison.values)}"'
    return f"no {what} has {condition_text(cause.condition)}"


def _kinds_of(path: Sequence[str]) -> str:
    return "capacities" if path[0] == "capacity" else "attributes"


def _too_few(cause: TooFew) -> str:
    asked = cause.asked
    devices = "all devices" if not asked.count else of_class(asked.count, asked.class_name)
    match cause.code:
        case "DRA031":
            if 0 < cause.most < asked.count:
                return f"no node has {devices}, the largest has {cause.most}"
            return f"no node can give {devices}"
        case "DRA032":
            return f"{cause.free} suitable devices are free, but no node has {asked.count} free"
        case "DRA038":
            left = f"the nearest has {cause.offered}"
            return f"no {one(asked)} has the {cause.needed} {last(cause.name)} left, {left}"
        case "DRA039":
            left = f"the best has {cause.offered}"
            return f"no {one(asked)} has {cause.needed} {last(cause.name)} left, {left}"
        case "DRA040":
            taint = cause.taints[0][0] if cause.taints else "a taint"
            every = "every" if not cause.free else "every other"
            return f"{every} suitable device has taint {taint}"
        case "DRA044":
            every = plural(one(asked)) if "." not in asked.class_name else "devices"
            return f"it wants all {every} of a node, and no node has all of them free"
        case _:
            if not cause.free:
                few = {1: "the only suitable device is", 2: "both suitable devices are"}
                many = f"all {cause.total} suitable devices are"
                return f"{few.get(cause.total, many)} in use"
            return f"no node has {devices} free, the best has {cause.most_free}"


def _unmatched(cause: Unmatched) -> str:
    name = last(cause.constraint.name)
    if cause.constraint.kind == "total":
        free = "free " if cause.code == "DRA033" else ""
        amount = f"{shown_value(cause.constraint.amount)} {free}{name}"
        return f"no node has {counted(cause.wanted, 'device')} with {amount} in total"
    devices = f"{cause.wanted} devices"
    if cause.code == "DRA033":
        rule = f"of one {name}" if cause.constraint.kind == "match" else f"of different {name}"
        return f"{cause.free} devices are free, but no node has {cause.wanted} {rule} free"
    if cause.code == "DRA034":
        return f"no node has {devices} with the same {name}"
    return f"no node has {devices} that differ in {name}"


def _gang(cause: GangTooLarge) -> str:
    group = f"gang {cause.group}"
    if not cause.least:
        return cause.why
    if cause.members < cause.least:
        exist = f"{cause.members} {'exists' if cause.members == 1 else 'exist'}"
        return f"{group} starts with {counted(cause.least, 'pod')}, and only {exist}"
    if cause.topology:
        room = f"{cause.domain} has room for {cause.fitting}"
        return f"{group} needs {counted(cause.least, 'pod')} in one {cause.topology}; {room}"
    fit = "fits" if cause.fitting == 1 else "fit"
    few = f"only {cause.fitting} {fit}" if cause.fitting else "none fits"
    return f"{group} starts with {counted(cause.least, 'pod')} at once, and {few}"


def _unfit(cause: NodesUnfit) -> str:
    if cause.detail:
        return cause.detail
    reason = cause.reasons[0][0]
    if cause.able:
        nodes, count = listed(cause.able, 2), len(cause.able)
        if not cause.wants_devices:
            return f"{nodes} {reason_text(reason, count)}"
        have = "has" if count == 1 else "have"
        return f"{nodes} {have} the devices, but {reason_text(reason, count)}"
    return f"no node may run it: {reason}"


STATES: Final = {
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unreachable": "lost: its kubelet does not report",
    "node.kubernetes.io/memory-pressure": "short of memory",
    "node.kubernetes.io/disk-pressure": "short of disk space",
    "node.kubernetes.io/pid-pressure": "short of process ids",
    "node.kubernetes.io/network-unavailable": "without a network",
    "node.kubernetes.io/unschedulable": "cordoned",
    "ToBeDeletedByClusterAutoscaler": "being removed by cluster-autoscaler",
}
"""What the control plane says of a node by its taints."""


def reason_text(reason: Reason, count: int) -> str:
    """Return a reason as what nodes do: `is cordoned`."""
    be = "is" if count == 1 else "are"
    match reason.rule:
        case rule if rule is CORDONED:
            return f"{be} cordoned"
        case rule if rule is TAINTED:
            key, value = reason.fields
            if key in STATES:
                return f"{be} {STATES[key]}"
            return f"{'has' if count == 1 else 'have'} taint {f'{key}={value}' if value else key}"
        case rule if rule is UNSELECTED:
            return f"{'does' if count == 1 else 'do'} not match its node selector"
        case rule if rule is INSUFFICIENT:
            return f"{'lacks' if count == 1 else 'lack'} {reason.subject}"
        case rule if rule is TOO_MANY_PODS:
            return f"{'has' if count == 1 else 'have'} no room for one more pod"
        case rule if rule is CLAIM_ELSEWHERE:
            return "cannot use the devices of its claim"
        case _:
            return f"{be} ruled out: {reason}"


# --- what is asked


def one(asked: Asked) -> str:
    """Return one device of a request's class, as a noun: `gpu`, `device of class gpu.x.com`."""
    return of_class(1, asked.class_name).removeprefix("1 ")


def wanted(asked: Asked, first: ConditionText | None = None) -> Line:
    """Return what a request asks for, a condition that matters first, and the claim it is of."""
    what = (
        f"all devices of class {asked.class_name}"
        if not asked.count
        else of_class(asked.count, asked.class_name)
    )
    ordered = sorted(asked.conditions, key=lambda each: each != first)
    told = [condition_text(each) for each in ordered[:MOST_CONDITIONS]]
    if len(ordered) > MOST_CONDITIONS:
        told.append(f"{len(ordered) - MOST_CONDITIONS} more conditions")
    told += [f"{shown_value(amount)} {name}" for name, amount in asked.capacity.items()]
    if told:
        what += f" with {joined(told)}"
    for rule in asked.constraints:
        what += f", {constraint_text(rule)}"
    if asked.admin:
        what += ", with admin access"
    return what, asked.claim if asked.only else f"{asked.claim}, request {asked.request}"


def condition_text(condition: ConditionText) -> str:
    """Return a condition in a few words where it is a plain comparison, else its text.

    >>> from dralab.cel import environment
    >>> from dralab.cel.conjuncts import conjuncts
    >>> (part,) = conjuncts('device.attributes["a"].kind == "x"', environment())
    >>> condition_text(ConditionText(text=part.text, comparison=part.comparison))
    'kind "x"'
    """
    comparison = condition.comparison
    if comparison is None:
        return f"`{' '.join(condition.text.split())}`"
    name = short_path(comparison.path)
    value = _values_text(comparison.values)
    match comparison.operator:
        case "==" if comparison.values in {(True,), (False,)}:
            return f"{name} {value}"
        case "==" if comparison.constructor or isinstance(comparison.values[0], int):
            return f"{name} {value}"
        case "==":
            return f'{name} "{value}"'
        case "in":
            shown = [
                f'"{each}"' if isinstance(each, str) else str(each) for each in comparison.values
            ]
            return f"{name} {joined(shown, 'or')}"
        case "has":
            return f"a value for {name}"
        case "includes":
            return f'"{value}" in {name}'
        case "startsWith" | "endsWith" | "contains" | "matches":
            verb = {"startsWith": "beginning with", "endsWith": "ending with"}
            return f'{name} {verb.get(comparison.operator, comparison.operator)} "{value}"'
        case _:
            return f"{name} {SIGNS.get(comparison.operator, comparison.operator)} {value}"


def constraint_text(rule: Constraint) -> str:
    """Return a constraint in a few words."""
    name = last(rule.name)
    match rule.kind:
        case "match":
            return f"all with the same {name}"
        case "distinct":
            return f"each with another {name}"
        case "total":
            return f"in total {shown_value(rule.amount)} {name}"
        case _:
            return "under an unknown constraint"


def _values_text(values: Sequence[object]) -> str:
    shown = [
        "true" if value is True else "false" if value is False else str(value) for value in values
    ]
    return joined(shown, "or")


def last(name: str) -> str:
    """Return a qualified name without its domain."""
    return name.rpartition("/")[2]

"""The sentences of a diagnosis, without layout: headline, what is asked for, what would help."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

from dralab.allocation.problem import Constraint
from dralab.explanation import causes
from dralab.explanation.codes import CODES
from dralab.explanation.names import (
    SIGNS,
    counted,
    joined,
    listed,
    of_class,
    plural,
    short_path,
    shortened,
    shown_value,
)
from dralab.scheduling.reasons import (
    CLAIM_ELSEWHERE,
    CORDONED,
    INSUFFICIENT,
    NO_DEVICES,
    TAINTED,
    TOO_MANY_PODS,
    UNSELECTED,
    Reason,
)

Line = tuple[str, str]
"""A line of the page: what it says, and an aside to its right."""
MOST_CONDITIONS = 3


def headline(cause: causes.Cause) -> str:
    """Return the cause in a few words; it follows "NAME waits: "."""
    return CODES[cause.code].told(_fields(cause)) if cause.code in CODES else cause.code


def asks(cause: causes.Cause) -> Iterator[Line]:
    """Yield what is asked for, one line for each request that matters."""
    match cause:
        case causes.NoAlternative():
            for each in cause.causes:
                yield from asks(each)
        case causes.Competing() | causes.Together() | causes.Unmatched():
            for asked in cause.asked:
                yield wanted(asked)
        case causes.GangTooLarge() if cause.cause is not None:
            yield from asks(cause.cause)
        case (
            causes.FailingSelector()
            | causes.NoSuchDevice()
            | causes.NotTogether()
            | causes.Lacking()
            | causes.TooFew()
        ):
            first = cause.condition if isinstance(cause, causes.NoSuchDevice) else None
            yield wanted(cause.asked, first)
        case _:
            return


# --- what the sentences of `codes` are filled with


def _fields(cause: causes.Cause) -> dict[str, str]:
    """Return the fields of a cause; one that is empty rules out the sentences that have it."""
    found: dict[str, str] = {}
    match cause:
        case causes.Refused():
            found = {"text": cause.text, "missing": cause.missing, "name": cause.name}
        case causes.NothingThere():
            found = {"text": cause.detail}
        case causes.NodesUnfit():
            found = {"text": _unfit(cause)}
        case causes.GangTooLarge():
            found = _of_gang(cause)
        case causes.FailingSelector():
            share = f"{cause.devices} of {counted(cause.total, 'device')}"
            last_name = cause.lacking[-1] if cause.lacking else ""
            what = "device" if cause.code == "DRA023" else one(cause.asked)
            found = {"share": share, "lacking": last_name, "what": what} | _of_path(cause.lacking)
        case causes.NoSuchDevice():
            found = _of_condition(cause)
        case causes.Lacking():
            best = cause.needed if cause.best else ""
            found = {"one": one(cause.asked), "name": cause.name, "needed": best}
        case causes.TooFew():
            found = _of_few(cause)
        case causes.Unmatched():
            found = _of_constraint(cause)
        case causes.NotTogether():
            found = {"one": one(cause.asked), "number": str(len(cause.met))}
        case causes.Competing():
            found = {
                "requests": joined([each.request for each in cause.asked]),
                "devices": counted(cause.devices, "device"),
                "counter": cause.counter if cause.asked and cause.asked[0].count else "",
                "shared": cause.counter,
            }
        case causes.Together():
            pass
        case causes.NoAlternative():
            found = {"request": cause.request}
        case _:
            assert_never(cause)
    return found


def _of_path(path: Sequence[str]) -> dict[str, str]:
    if len(path) < 3:
        return {}
    of_capacity = path[0] == "capacity"
    return {
        "word": "capacity" if of_capacity else "attribute",
        "words": "capacities" if of_capacity else "attributes",
        "domain": path[1],
        "name": path[2],
    }


def _of_condition(cause: causes.NoSuchDevice) -> dict[str, str]:
    comparison = cause.condition.comparison
    found = {
        "what": one(cause.asked) if cause.of_class else "device",
        "class": cause.asked.class_name,
    }
    if comparison is None:
        return found
    return (
        found
        | _of_path(comparison.path)
        | {
            "condition": condition_text(cause.condition),
            "values": _values_text(comparison.values),
            "name": short_path(comparison.path),
        }
    )


def _of_few(cause: causes.TooFew) -> dict[str, str]:
    asked = cause.asked
    several = {1: "the only suitable device is", 2: "both suitable devices are"}
    every = several.get(cause.total, f"all {cause.total} suitable devices are")
    return {
        "devices": of_class(asked.count, asked.class_name) if asked.count else "all devices",
        "most": str(cause.most) if 0 < cause.most < asked.count else "",
        "most_free": str(cause.most_free),
        "free": str(cause.free),
        "count": str(asked.count),
        "all": "" if cause.free else every,
        "one": one(asked),
        "ones": "devices" if "." in asked.class_name else plural(one(asked)),
        "needed": cause.needed,
        "offered": cause.offered,
        "short": last(cause.name),
        "every": "every other" if cause.free else "every",
        "taint": cause.taints[0][0] if cause.taints else "a taint",
    }


def _of_constraint(cause: causes.Unmatched) -> dict[str, str]:
    name, kind = last(cause.constraint.name), cause.constraint.kind
    return {
        "short": name,
        "wanted": str(cause.wanted),
        "devices": counted(cause.wanted, "device"),
        "amount": shown_value(cause.constraint.amount) if kind == "total" else "",
        "free": str(cause.free),
        "rule": f"of one {name}" if kind == "match" else f"of different {name}",
    }


def _of_gang(cause: causes.GangTooLarge) -> dict[str, str]:
    if not cause.least:
        return {"text": cause.why}
    few = cause.members < cause.least
    fit = "fits" if cause.fitting == 1 else "fit"
    return {
        "group": cause.group,
        "pods": counted(cause.least, "pod"),
        "exist": f"{cause.members} {'exists' if cause.members == 1 else 'exist'}" if few else "",
        "topology": cause.topology,
        "room": f"{cause.domain} has room for {cause.fitting}",
        "few": f"only {cause.fitting} {fit}" if cause.fitting else "none fits",
    }


def _unfit(cause: causes.NodesUnfit) -> str:
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


def one(asked: causes.Asked) -> str:
    """Return one device of a request's class, as a noun: `gpu`, `device of class gpu.x.com`."""
    return of_class(1, asked.class_name).removeprefix("1 ")


def wanted(asked: causes.Asked, first: causes.ConditionText | None = None) -> Line:
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


def condition_text(condition: causes.ConditionText) -> str:
    """Return a condition in a few words where it is a plain comparison, else its text.

    >>> from dralab.cel import environment
    >>> from dralab.cel.conjuncts import conjuncts
    >>> (part,) = conjuncts('device.attributes["a"].kind == "x"', environment())
    >>> condition_text(causes.ConditionText(text=part.text, comparison=part.comparison))
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


def help_text(found: causes.Help, holders: Mapping[str, str] | None = None) -> str:
    """Return what a user could do; `holders` names the pods that hold claims."""
    names = [_named(name, holders or {}) for name in found.who]
    text = _help(found, list(dict.fromkeys(names)), holders or {})
    if found.kind in {"value", "drop"} and found.note:
        text += f" {found.note}"
    if found.kind in {"spelling", "value", "drop", "guard"} and found.devices:
        match = "matches" if found.devices == 1 else "match"
        numbers = f"{counted(found.devices, 'device')} {match}, {found.free} free"
        text += f" {numbers}" if found.kind == "spelling" else f": {numbers}"
    if found.lacking and not any(each.rule is NO_DEVICES for each, _ in found.lacking):
        text += f" (not enough: then {listed(map(_lacking, found.lacking))})"
    elif not found.now and found.kind not in {"add", "wait", "spelling"}:
        text += " (then it waits for devices in use)"
    return text


def _lacking(item: tuple[Reason, int]) -> str:
    """Return what is missing on so many nodes; 0: on all of them."""
    reason, count = item
    return f"{counted(count, 'node')} {reason_text(reason, count)}" if count else str(reason)


def _named(name: str, holders: Mapping[str, str]) -> str:
    """Return what people call a claim (its pod), or a pod that is named itself: `pod ml/train`."""
    if name.startswith("pod "):
        return shortened(name.removeprefix("pod "))
    return holders.get(name, f"claim {shortened(name)}")


def _help(found: causes.Help, names: Sequence[str], holders: Mapping[str, str]) -> str:
    match found.kind:
        case "spelling":
            return f"did you mean {found.to}?"
        case "count" if not found.to:
            return " ".join(["ask for", counted(found.number, "device"), found.note]).rstrip()
        case "guard" | "count":
            return f"write {found.to}"
        case "wait" if found.note == "any" and len(names) > 1:
            first = f"; {names[0]} ends first: {found.ends}" if found.ends else ""
            return f"wait until {joined(names, 'or')} ends: each is enough{first}"
        case "wait":
            ends = f" ({found.ends})" if found.ends else ""
            return f"wait until {joined(names)} {'ends' if len(names) == 1 else 'end'}{ends}"
        case "value":
            return f"ask for {found.to}"
        case "move":
            return f"move {joined(names)} from {found.note} to {found.to}"
        case "several":
            return f"together: {'; '.join(help_text(each, holders) for each in found.parts)}"
        case "preempt" if not found.note:
            lower = "its priority is" if len(names) == 1 else "their priorities are"
            return f"delete {joined(names)}: {lower} lower ({found.to})"
        case "preempt":
            text = f"the scheduler preempts {joined(names)} {found.note} ({found.to})"
        case _:
            text = _plain(found)
    return text


def _plain(found: causes.Help) -> str:
    match found.kind:
        case "constraint":
            return f"use {found.to} instead of {found.note}"
        case "tolerate":
            return f"tolerate taint {found.to}"
        case "drop":
            return f"leave out {found.to}"
        case _:
            return found.to

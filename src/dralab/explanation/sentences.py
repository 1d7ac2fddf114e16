"""The sentences of a diagnosis, without layout: headline, what is asked for, what would help.

Those of causes are `codes`'; here are the others, by what they tell, and the fields of all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from typing import Any, Final

from dralab.allocation import facts
from dralab.allocation.problem import Constraint
from dralab.explanation import causes
from dralab.explanation.codes import CODES, Line, first_of, written
from dralab.explanation.conditions import Condition
from dralab.explanation.names import (
    SIGNS,
    counted,
    device_name,
    joined,
    listed,
    of_class,
    plural,
    short_path,
    shortened,
    shown_value,
    taint_text,
)
from dralab.explanation.questions import NodeGroup
from dralab.scheduling import reasons
from dralab.scheduling.reasons import Reason, unavailable

MOST_CONDITIONS: Final = 3
BLOCKED: Final = {
    "in-use": "in use", "taint": "tainted", "capacity": "without the room",
    "counters": "blocked by other parts", "groups": "of another group",
}  # fmt: skip
"""What keeps a device that suits from being had."""
HELPS: Final[Mapping[str, tuple[str, ...]]] = {
    "spelling": ("did you mean {to}?[ {match}]",),
    "guard": ("write {to}[: {match}]",),
    "count": ("write {to}", "ask for {number:device}[ {note}]"),
    "wait": (
        "wait until {any} ends: each is enough[; {first} ends first: {ends}]",
        "wait until {every} {end}[ ({ends})]",
    ),
    "value": ("ask for {to}[ {note}][: {match}]",),
    "constraint": ("use {to} instead of {note}",),
    "tolerate": ("tolerate taint {to}",),
    "drop": ("leave out {to}[ {note}][: {match}]",),
    "move": ("move {every} from {note} to {to}",),
    "preempt": (
        "the scheduler preempts {every} {note} ({to})",
        "delete {every}: {priority} lower ({to})",
    ),
    "several": ("together: {all}",),
}
"""What a user could do, by the kind of a help; others say it in `to`."""
NODES_DO: Final = {
    reasons.CORDONED: "{be} cordoned",
    reasons.TAINTED: "{be} {state}",
    reasons.UNSELECTED: "{do} not match its node selector",
    reasons.INSUFFICIENT: "{lack} {subject}",
    reasons.TOO_MANY_PODS: "{have} no room for one more pod",
    reasons.CLAIM_ELSEWHERE: "cannot use the devices of its claim",
}
"""What nodes that are refused do, in the present tense; others are ruled out."""
VERBS: Final = {"be": "is are", "have": "has have", "do": "does do", "lack": "lacks lack"}
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
CONDITIONS: Final = {
    "taint": "request {request} does not tolerate {taint}",
    "count": "request {request} wants {number:device}",
    "capacity": "request {request} asks for an amount of {text}",
    "constraint": "claim {claim}: {text}",
    "selector": "request {request}: {text}",
    "class-selector": "class {request}: {text}",
}
"""The parts of a minimal conflict; devices in use are told as one."""
FACTS: Final = {
    "PoolUnusable": "pool {driver}/{pool} is {why}[: {detail}]",
    "BadRequest": "{text}",
    "RequestFacts": "request {request} of {claim} wants {wanted:device}: {eligible} of {devices} "
    "could serve it",
    "Shortage": "requests {names} together want {wanted:device}, and {eligible} could serve them",
    "CounterShortage": "counter {counter_set}/{counter} of pool {driver}/{pool} has {left:amount} "
    "of the {least:amount} needed at least",
    "ConstraintOffers": "{wanted:device} {rule} {name}: there are {values}",
    "TooManyDevices": "claim {claim} wants more than {limit} devices",
}
EXCLUDED: Final[Mapping[str, tuple[str, ...]]] = {
    "selector": ("not of {where} `{detail}`",),
    "error": ("for which {error}",),
    "in-use": ("in use[ by {holders}]",),
    "node": ("for other nodes",),
    "taint": ("with taint {taint}",),
    "capacity": (
        "where {detail} has {had:amount} of the {needed:amount} needed[ (held by {holders})]",
        "without capacity {detail}",
    ),
    "counters": (
        "for which counter {detail} has {offered:amount} of the {needed:amount} needed"
        "[ (held by {holders})]",
    ),
    "groups": ("that do not go together with others on {detail}[ (held by {holders})]",),
    "attribute": ("without attribute {detail}",),
    "feature": ("with {detail}, which is switched off",),
}
"""What leaves devices out, by the reason of the facts."""


def headline(cause: causes.WaitingCause) -> str:
    """Return the cause in a few words; it follows "NAME waits: "."""
    return CODES[cause.code].sentence(_fields(cause))


def what_exists(cause: causes.WaitingCause) -> Iterator[Line]:
    """Yield what exists instead."""
    yield from CODES[cause.code].what_exists(_fields(cause))
    match cause:
        case causes.NoAlternative():
            for each in cause.causes:
                name = next((one.request.partition("/")[2] for one in each.asked), "")
                yield f"{name}: {headline(each)}", each.code
        case causes.NotTogether():
            for condition, count in cause.met:
                yield f"  {count} with {condition_text(condition)}", ""
        case causes.Together():
            yield from ((text, "") for text in _conflict(cause.conflict))
        case causes.GangTooLarge() if cause.cause is not None:
            yield from what_exists(cause.cause)
        case causes.NodesUnfit():
            yield from ((fact, "") for fact in cause.facts)
            # The sentence that kube-scheduler writes into events.
            yield unavailable(cause.total, cause.reasons), ""
        case _:
            return


def asks(cause: causes.WaitingCause) -> Iterator[Line]:
    """Yield what is asked for, one line for each request that matters."""
    if isinstance(cause, causes.NoAlternative):
        for each in cause.causes:
            yield from asks(each)
    elif isinstance(cause, causes.GangTooLarge):
        yield from asks(cause.cause) if cause.cause is not None else ()
    elif not isinstance(cause, causes.Refused):
        first = cause.condition if isinstance(cause, causes.NoSuchDevice) else None
        yield from (wanted(each, first) for each in cause.asked)


# --- the fields of sentences


def _written_fields(told: Any) -> dict[str, Any]:
    return {each.name: getattr(told, each.name) for each in fields_of(told)}


def _fields(cause: causes.WaitingCause) -> dict[str, Any]:
    """Return the fields of a cause; one that is empty rules out the sentences that have it."""
    found = _written_fields(cause)
    if asked := cause.asked:
        found |= {
            "one": one(asked[0]),
            "what": "device" if cause.code == "DRA023" else one(asked[0]),
            "class": asked[0].class_name,
            "requests": joined([each.request for each in asked]),
            "having": of_class(found.get("total", 0), asked[0].class_name),
        }
    match cause:
        case causes.Refused():
            found["kinds"] = plural(cause.missing) if cause.missing else ""
        case causes.NothingThere():
            found["text"] = cause.detail
        case causes.NodesUnfit():
            found["text"] = cause.detail or _ruled_out(cause)
        case causes.GangTooLarge():
            found |= _of_gang(cause)
        case causes.FailingSelector():
            found |= _of_failure(cause)
        case causes.NoSuchDevice():
            found |= _of_condition(cause)
        case causes.NotTogether():
            found["number"] = len(cause.met)
        case causes.Lacking():
            # Names without domains, unless one would look like the name that is lacking.
            short = tuple(map(last, cause.known))
            found["names"] = cause.known if last(cause.name) in short else short
            found["needed"] = cause.needed if cause.best else ""
        case causes.TooFew():
            found |= _of_few(cause)
        case causes.Unmatched():
            found |= _of_constraint(cause)
        case causes.Competing():
            found["shared"] = cause.counter
            found["counter"] = cause.counter if asked and asked[0].count else ""
            found["suit"] = "suits" if cause.devices == 1 else "suit"
        case _:
            pass
    return found


def _of_path(path: Sequence[str]) -> dict[str, Any]:
    if len(path) < 3:
        return {"name": path[-1] if path else ""}
    words = ("capacity", "capacities") if path[0] == "capacity" else ("attribute", "attributes")
    return {"word": words[0], "words": words[1], "domain": path[1], "name": path[2]}


def _of_failure(cause: causes.FailingSelector) -> dict[str, Any]:
    found = _of_path(cause.lacking) | {"rest": cause.total - cause.devices}
    if cause.code == "DRA023":
        found["domains"] = tuple(dict.fromkeys(each.partition("/")[0] for each in cause.known))
    if cause.lacking:
        names = [last(each) for each in cause.known if each.startswith(f"{cause.lacking[1]}/")]
        found["names"] = tuple(names or map(last, cause.known))
    return found


def _of_condition(cause: causes.NoSuchDevice) -> dict[str, Any]:
    comparison = cause.condition.comparison
    found: dict[str, Any] = {"condition": ""}
    if not cause.of_class:
        found |= {"what": "device", "having": counted(cause.total, "device")}
    if comparison is not None:
        found |= _of_path(comparison.path)
        found |= {
            "condition": condition_text(cause.condition),
            "literal": _values_text(comparison.values),
            "only": cause.best if cause.total == 1 else "",
            "extreme": "largest" if comparison.operator in {">", ">="} else "smallest",
            "offers": _offers(cause.values),
            "known": tuple(sorted(cause.known)),
        }
    return found


def _of_few(cause: causes.TooFew) -> dict[str, Any]:
    asked = cause.asked[0]
    several = {1: "the only suitable device is", 2: "both suitable devices are"}
    every = several.get(cause.total, f"all {cause.total} suitable devices are")
    what = "their room held" if cause.code in {"DRA038", "DRA039"} else "held"
    held = f"{what} by {listed(cause.holders)}" if cause.holders else ""
    alone = len(cause.blocked) == 1
    blocked = [f"{count} {BLOCKED[why]}" for why, count in cause.blocked.items()]
    taints = tuple(f"{taint} ({count})" for taint, count in cause.taints)
    return {
        "devices": of_class(asked.count, asked.class_name) if asked.count else "all devices",
        "most": cause.most if 0 < cause.most < asked.count else "",
        "at_once": cause.most,
        "count": asked.count,
        "all": "" if cause.free else every,
        "ones": "devices" if "." in asked.class_name else plural(one(asked)),
        "short": last(cause.name),
        "every": "every other" if cause.free else "every",
        "taint": cause.taints[0][0] if cause.taints else "a taint",
        "left": cause.most_free if asked.count != 1 else "",
        "held": held if alone else "",
        "blocked": "" if alone else joined(blocked),
        "held_too": held,
        "taints": taints if len(taints) > 1 else (),
    }


def _of_constraint(cause: causes.Unmatched) -> dict[str, Any]:
    name, kind = last(cause.constraint.name), cause.constraint.kind
    free = cause.free if cause.code == "DRA033" else cause.total
    return {
        "short": name,
        "amount": shown_value(cause.constraint.amount) if kind == "total" else "",
        "rule": f"of one {name}" if kind == "match" else f"of different {name}",
        "having": of_class(free, cause.asked[0].class_name),
        "agreeing": f"with {'the same' if kind == 'match' else 'different'} {name}",
        "offers": listed(_offers(cause.values), 6) or "none",
        "others": () if kind == "total" else cause.holders,
    }


def _offers(values: Iterable[causes.Offered]) -> tuple[str, ...]:
    """Return values with the number of their devices."""
    return tuple(f"{each.value} ({each.devices})" for each in values)


def _of_gang(cause: causes.GangTooLarge) -> dict[str, Any]:
    few = cause.members < cause.least
    fit = "fits" if cause.fitting == 1 else "fit"
    return {
        "text": cause.why,
        "group": cause.group if cause.least else "",
        "exist": f"{cause.members} {'exists' if cause.members == 1 else 'exist'}" if few else "",
        "few": f"only {cause.fitting} {fit}" if cause.fitting else "none fits",
        "failure": headline(cause.cause) if cause.cause else cause.why,
    }


def _ruled_out(cause: causes.NodesUnfit) -> str:
    reason, count = cause.reasons[0][0], len(cause.able)
    if not cause.able:
        return f"no node may run it: {reason}"
    have = "" if not cause.wants_devices else "has the devices, but " if count == 1 else (
        "have the devices, but "
    )  # fmt: skip
    return f"{listed(cause.able, 2)} {have}{reason_text(reason, count)}"


def reason_text(reason: Reason, count: int) -> str:
    """Return a reason as a predicate of a node: `is cordoned`."""
    verbs = {name: forms.split()[count != 1] for name, forms in VERBS.items()}
    sentence = NODES_DO.get(reason.rule, "{be} ruled out: {reason}")
    found: dict[str, Any] = verbs | {"reason": str(reason), "subject": reason.subject}
    if reason.rule is reasons.TAINTED:
        key, value = reason.fields
        taint = f"{verbs['have']} taint {key}{f'={value}' if value else ''}"
        found["state"] = STATES.get(key, "")
        return written(sentence, found) or taint
    return written(sentence, found)


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
    name, operator = short_path(comparison.path), comparison.operator
    value, values = _values_text(comparison.values), comparison.values
    verbs = {
        "startsWith": "beginning with", "endsWith": "ending with", "contains": "contains",
        "matches": "matches",
    }  # fmt: skip
    if operator == "==":
        plain = comparison.constructor or isinstance(values[0], int)
        return f"{name} {value}" if plain else f'{name} "{value}"'
    if operator == "in":
        shown = [f'"{each}"' if isinstance(each, str) else str(each) for each in values]
        return f"{name} {joined(shown, 'or')}"
    if operator == "has":
        return f"a value for {name}"
    if operator == "includes":
        return f'"{value}" in {name}'
    if operator in verbs:
        return f'{name} {verbs[operator]} "{value}"'
    return f"{name} {SIGNS.get(operator, operator)} {value}"


def constraint_text(rule: Constraint) -> str:
    """Return a constraint in a few words."""
    name = last(rule.name)
    words = {
        "match": f"all with the same {name}",
        "distinct": f"each with another {name}",
        "total": f"in total {shown_value(rule.amount)} {name}",
    }
    return words.get(rule.kind, "under an unknown constraint")


def _values_text(values: Sequence[object]) -> str:
    shown = [str(each).lower() if isinstance(each, bool) else str(each) for each in values]
    return joined(shown, "or")


def last(name: str) -> str:
    """Return a qualified name without its domain."""
    return name.rpartition("/")[2]


# --- what would help


def help_text(found: causes.Help, holders: Mapping[str, str] | None = None) -> str:
    """Return what a user could do; `holders` names the pods that hold claims."""
    names = list(dict.fromkeys(_named(name, holders or {}) for name in found.who))
    single, match = len(names) == 1, "matches" if found.devices == 1 else "match"
    fields = _written_fields(found) | {
        "every": joined(names),
        "any": joined(names, "or") if found.note == "any" and not single else "",
        "first": names[0] if names else "",
        "end": "ends" if single else "end",
        "priority": "its priority is" if single else "their priorities are",
        "all": "; ".join(help_text(each, holders) for each in found.parts),
        "match": f"{counted(found.devices, 'device')} {match}, {found.free} free"
        if found.devices
        else "",
    }
    text = first_of((*HELPS.get(found.kind, ()), "{to}"), fields)
    if found.lacking and not any(each.rule is reasons.NO_DEVICES for each, _ in found.lacking):
        text += f" (not enough: then {listed(map(_lacking, found.lacking))})"
    elif not found.now and found.kind not in {"add", "wait", "spelling"}:
        text += " (then it waits for devices in use)"
    return text


def _lacking(item: tuple[Reason, int]) -> str:
    """Return what is missing on so many nodes; 0: on all of them."""
    reason, count = item
    return f"{counted(count, 'node')} {reason_text(reason, count)}" if count else str(reason)


def _named(name: str, holders: Mapping[str, str]) -> str:
    """Return the name of a claim's pod, or of a pod itself: `pod ml/train`."""
    if name.startswith("pod "):
        return shortened(name.removeprefix("pod "))
    return holders.get(name, f"claim {shortened(name)}")


# --- what groups of nodes lack


def _conflict(conflict: Sequence[Condition]) -> Iterator[str]:
    """Yield the parts of a minimal conflict; devices in use are one part."""
    held = [device for item in conflict if item.kind == "held" for device in item.devices]
    holders = sorted({name for item in conflict for name in item.holders})
    if held:
        by = f" by {listed(holders)}" if holders else ""
        yield f"{counted(len(held), 'device')} in use{by}: {listed(map(device_name, held))}"
    for item in conflict:
        fields = _written_fields(item) | {"text": " ".join(item.text.split())}
        fields["taint"] = taint_text(item.taint) if item.taint else ""
        yield from filter(None, [written(CONDITIONS.get(item.kind, ""), fields)])


def group_lines(groups: Iterable[NodeGroup]) -> Iterator[str]:
    """Yield every group of nodes with all of its facts."""
    for group in groups:
        if len(group.nodes) == 1:
            yield f"Node {group.nodes[0]}:"
        else:
            yield f"{len(group.nodes)} nodes ({', '.join(group.nodes)}):"
        for fact in group.facts:
            yield f"  {fact_text(fact)}"
            if isinstance(fact, facts.RequestFacts):
                yield from (f"    {left_out(item)}" for item in fact.excluded)


def fact_text(fact: facts.Fact) -> str:
    """Return a fact of one node."""
    fields = _written_fields(fact)
    if isinstance(fact, facts.Shortage):
        fields["names"] = ", ".join(request for _, request in fact.requests)
    elif isinstance(fact, facts.ConstraintOffers):
        values = [
            f"{'none' if value is None else shown_value(value)} ({count})"
            for value, count in fact.offers
        ]
        fields["values"] = listed(values, 8) or "nothing"
        fields["rule"] = "with the same" if fact.kind == "match" else "that differ in"
    return written(FACTS[type(fact).__name__], fields)


def left_out(item: facts.Excluded) -> str:
    """Return how many devices a reason excludes, and the reason."""
    fields = _written_fields(item) | {
        "detail": " ".join(item.detail.split()),
        "taint": taint_text(item.taint) if item.taint is not None else "",
        "had": item.offered if item.offered or item.holders else "",
    }
    return f"{item.count} {first_of(EXCLUDED[item.why], fields)}"

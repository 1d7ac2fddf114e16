"""A diagnosis as JSON values: what programs read, with stable codes and names.

The form is described in docs/reference/explanation.schema.json.
"""

from collections.abc import Iterator
from typing import Any

from dralab.explanation.causes import (
    Asked,
    Cause,
    Diagnosis,
    Help,
    MarkedField,
    NoAlternative,
    NotTogether,
)
from dralab.explanation.help_words import help_text
from dralab.explanation.names import shown_value
from dralab.explanation.offers import there
from dralab.explanation.patches import patch_of
from dralab.explanation.text import Names, Spots
from dralab.explanation.words import (
    condition_text,
    constraint_text,
    headline,
    wanted,
)

NUMBERS = (
    "total", "nodes", "devices", "free", "most", "most_free", "wanted", "where", "best", "needed",
    "offered", "name", "message", "missing", "detail",
)  # fmt: skip


def structured(found: Diagnosis, names: Names | None = None) -> dict[str, Any]:
    """Return a diagnosis, with the names that people use in its texts and places."""
    names = names or Names()
    return {
        "object": found.subject,
        "fits": False,
        **_cause(found.cause, names.spots),
        "helps": [_help(each, names) for each in found.helps],
        "nodes": found.nodes,
        "unfit": [{"reason": str(reason), "nodes": count} for reason, count in found.unfit],
        "settled": found.settled,
    }


def _cause(cause: Cause, spots: Spots) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in NUMBERS:
        value = getattr(cause, name, None)
        if value not in {None, ""} and not (isinstance(value, int) and not value):
            facts[_camel(name)] = value
    if values := getattr(cause, "values", ()):
        facts["values"] = [
            {"value": each.value, "devices": each.devices, "free": each.free} for each in values
        ]
    if blocked := getattr(cause, "blocked", None):
        facts["blocked"] = dict(blocked)
    if names := getattr(cause, "holders", ()):
        facts["holders"] = list(names)
    if examples := getattr(cause, "examples", ()):
        facts["examples"] = list(examples)
    told: dict[str, Any] = {"code": cause.code, "headline": headline(cause)}
    if asked := list(_asked(cause)):
        told["asksFor"] = [_request(each) for each in asked]
    told["thereAre"] = [text.strip() for text, _ in there(cause)]
    if facts:
        told["facts"] = facts
    if marks := list(_marks(cause)):
        told["places"] = [_place(each, spots) for each in marks]
    if isinstance(cause, NoAlternative):
        told["alternatives"] = [_cause(each, spots) for each in cause.causes]
    return told


def _asked(cause: Cause) -> Iterator[Asked]:
    found = getattr(cause, "asked", None)
    if isinstance(found, Asked):
        yield found
    elif isinstance(found, tuple):
        yield from found


def _request(asked: Asked) -> dict[str, Any]:
    return {
        "claim": asked.claim,
        "request": asked.request,
        "class": asked.class_name,
        "count": asked.count or "All",
        "conditions": [condition_text(each) for each in asked.conditions],
        "capacity": {name: shown_value(amount) for name, amount in asked.capacity.items()},
        "constraints": [constraint_text(rule) for rule in asked.constraints],
        "text": wanted(asked)[0],
    }


def _marks(cause: Cause) -> Iterator[MarkedField]:
    if isinstance(cause, NotTogether):
        yield from cause.marks
    elif isinstance(found := getattr(cause, "mark", None), MarkedField):
        yield found


def _place(mark: MarkedField, spots: Spots) -> dict[str, Any]:
    owner = " ".join(mark.owner)
    found: dict[str, Any] = {"object": owner, "field": mark.field, "at": spots.spot(mark)}
    if mark.text:
        found["text"] = mark.text
    if mark.span is not None:
        found |= {"start": mark.span.start, "end": mark.span.end}
    return found


def _help(each: Help, names: Names) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": each.kind,
        "text": help_text(each, names.holders),
        "fitsNow": each.now,
    }
    if each.who:
        found["who"] = list(each.who)
        if each.kind == "wait":
            found["enough"] = 1 if each.note == "any" else len(each.who)
    if node := _node(each):
        found["node"] = node
    if each.number:
        found["number"] = each.number
    if each.devices:
        found |= {"devices": each.devices, "free": each.free}
    if names.patches and each.mark is not None and (patch := patch_of(each)):
        found |= {"object": " ".join(each.mark.owner), "patch": patch}
    if each.lacking:
        found["lacking"] = [{"reason": str(why), "nodes": count} for why, count in each.lacking]
    if command := names.command(each):
        found["command"] = command
    if each.parts:
        found["parts"] = [_help(part, names) for part in each.parts]
    return found


def _node(each: Help) -> str:
    """Return the node that a help is about: to change it, to move to it, or to add one like it."""
    if each.kind == "move":
        return each.to
    if each.kind == "add":
        return each.note
    return each.who[0] if each.kind == "node" and each.who else ""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

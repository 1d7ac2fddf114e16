"""A diagnosis as text, one screen for a person or a few words for an event, and as JSON values.

The form of the JSON is described in docs/reference/explanation.schema.json.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final, Protocol

from dralab.explanation.causes import (
    Asked,
    Diagnosis,
    Help,
    MarkedField,
    NoAlternative,
    NotTogether,
    WaitingCause,
)
from dralab.explanation.codes import Line
from dralab.explanation.edits import KINDS, command_of, patch_of
from dralab.explanation.names import shortened, shown_value
from dralab.explanation.sentences import (
    asks,
    condition_text,
    constraint_text,
    group_lines,
    headline,
    help_text,
    wanted,
    what_exists,
)
from dralab.scheduling.reasons import Reason
from dralab.values.records import dataclass

EVENT_BYTES: Final = 1024
"""As much as the note of an events.k8s.io Event holds."""
WIDTH: Final = 100
CODE_COLUMN: Final = 78
ASIDE_COLUMN: Final = 72
WIDEST: Final = 120
MOST_MARKS: Final = 3
MOST_NAMED: Final = 50
"""Nodes that are named for each rule that they break."""


class Spots(Protocol):
    """Finds where things are written."""

    def spot(self, mark: MarkedField) -> str:
        """Return a place in readable form."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectFields:
    """The places of objects in a cluster: kind, name and field path.

    `templates` names the ResourceClaimTemplate of claims that were made from one.
    """

    templates: Mapping[str, str] = field(default_factory=dict)

    def spot(self, mark: MarkedField) -> str:
        """Return the object and the field, as kubectl explain writes it."""
        kind, name = mark.owner
        if kind == "claim" and name in self.templates:
            return f"ResourceClaimTemplate {self.templates[name]}: spec.{mark.field}"
        return f"{KINDS[kind]} {name}: {mark.field}"


class WrittenFields:
    """The places of objects of older generations: the path that their author wrote, if known."""

    def spot(self, mark: MarkedField) -> str:
        """Return the path in the object."""
        return mark.field


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Readable names: `holders` names pods by the claims that they hold.

    `templates` names the ResourceClaimTemplate of claims that were made from one, `extended` the
    pod and field that claims for extended resources stand for. `commands`: the objects are in a
    cluster, so that the best help comes with the command that does it. `patches`: they are of
    today's API, whose fields a help can patch.
    """

    spots: Spots = field(default_factory=ObjectFields)
    holders: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    extended: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    commands: bool = False
    patches: bool = True

    def named(self, found: Diagnosis) -> Diagnosis:
        """Return a diagnosis whose cause names pods instead of the claims that they hold."""
        cause = found.cause
        if not cause.holders:
            return found
        pods = dict.fromkeys(
            self.holders.get(name, f"claim {shortened(name)}") for name in cause.holders
        )
        return replace(found, cause=replace(cause, holders=tuple(pods)))

    def moved(self, mark: MarkedField) -> MarkedField:
        """Return a mark in a claim for extended resources as one in its pod."""
        if mark.owner[1] not in self.extended or mark.owner[0] != "claim":
            return mark
        pod, field = self.extended[mark.owner[1]]
        return MarkedField(owner=("pod", pod), field=field, text=mark.text)

    def command(self, found: Help) -> str:
        """Return the command that does what a help says; none for claims that no object stands for.

        The claim for a pod's extended resources is made by the scheduler.
        """
        mark = found.mark
        if not self.patches:
            return found.command
        if mark is not None and mark.owner[0] == "claim" and mark.owner[1] in self.extended:
            return found.command
        return command_of(found, self.templates)

    def source(self, claim: str) -> str:
        """Return the object that has a claim's requests: `claim whole`, `template small`."""
        name, _, rest = claim.partition(",")
        if name in self.extended:
            return f"pod {shortened(self.extended[name][0])}"
        known = self.templates.get(name)
        text = f"claim {shortened(name)}" if known is None else f"template {shortened(known)}"
        return f"{text},{rest}" if rest else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why something waits: `diagnosis` holds the facts, the methods print them.

    `names` are those that people use: pods for claims, files and lines for fields.
    """

    diagnosis: Diagnosis
    names: Names = field(default_factory=Names)

    @property
    def code(self) -> str:
        """The stable code of the cause, such as DRA014."""
        return self.diagnosis.code

    def page(self, *, every_node: bool = False) -> str:
        """Return one screen for a person; `every_node` adds what every group of nodes lacks."""
        lines = list(_lines(self.names.named(self.diagnosis), self.names))
        if every_node:
            lines += ["", *group_lines(self.diagnosis.groups)]
        return "\n".join(line.rstrip() for line in lines)

    def brief(self, limit: int = EVENT_BYTES, *, known: str = "") -> str:
        """Return the cause, the numbers and the best help in at most `limit` bytes (UTF-8).

        What does not fit is left out as a whole: nothing is cut inside an expression. A line that
        is `known` is not repeated.
        """
        found = self.names.named(self.diagnosis)
        text = f"{headline(found.cause)} ({found.code})"
        lines = [line for line, _ in what_exists(found.cause) if line != known]
        parts = [f": {line.removesuffix('.')}." for line in lines[:1]] or ["."]
        for each in found.helps[:1]:
            told = help_text(each, self.names.holders)
            parts.append(f" Help: {told}" if told.endswith("?") else f" Help: {told}.")
        if found.unfit:
            parts.append(f" Other nodes: {_unfit(found)}.")
        for part in parts:
            if len((text + part).encode()) <= limit:
                text += part
        if len(text.encode()) <= limit:
            return text
        return f"{found.code}: see `dralab explain`."

    def structured(self) -> dict[str, Any]:
        """Return the facts as JSON values, with stable codes."""
        found = self.diagnosis
        return {
            "object": found.subject,
            "fits": False,
            **_cause(found.cause, self.names.spots),
            "helps": [_help(each, self.names) for each in found.helps],
            "nodes": found.nodes,
            "unfit": [unfit_group(reason, names) for reason, names in found.unfit],
            "settled": found.settled,
        }


def _lines(found: Diagnosis, names: Names) -> Iterator[str]:
    first = f"{short_subject(found.subject)} waits: {headline(found.cause)}"
    yield f"{first.ljust(CODE_COLUMN)} {found.code}"
    for mark in [each for each in _marks(found.cause) if each.text][:MOST_MARKS]:
        yield from _marked(names.moved(mark), names.spots)
    asked = [(text, names.source(claim)) for text, claim in asks(found.cause)]
    yield from _told("asks for", asked)
    yield from _told("there are", what_exists(found.cause))
    if found.unfit:
        yield from _told("other nodes", [(_unfit(found), "")])
    start = "help: "
    for each in found.helps:
        yield f"  {start}{help_text(each, names.holders)}"
        for one in each.parts or (each,):
            command = names.command(one) if names.commands else one.command
            if command and (one.command or each is found.helps[0]):
                yield f"        $ {command}"
        start = "  or: "
    if not found.settled:
        yield "  More steps would be needed to say more."


def _unfit(found: Diagnosis) -> str:
    return ", ".join(f"{len(names)} {reason}" for reason, names in found.unfit)


def unfit_group(reason: Reason, names: Sequence[str]) -> dict[str, Any]:
    """Return a rule and the nodes that break it, as JSON values: all counted, the first named."""
    return {
        "reason": str(reason),
        "code": reason.code,
        "nodes": len(names),
        "names": list(names[:MOST_NAMED]),
    }


def _marked(mark: MarkedField, spots: Spots) -> Iterator[str]:
    """Yield where something is written, its line, and carets under the piece that matters."""
    label = spots.spot(mark)
    text, start, end = _one_line(mark)
    if not label and mark.span is None:
        return
    label = label or "selector"
    if not text:
        yield f"  {label}"
        return
    lead = f"  {label}   "
    if len(lead) + len(text) > WIDTH:
        yield f"  {label}"
        lead = "      "
    yield f"{lead}{text}"
    if end > start:
        yield " " * (len(lead) + start) + "^" * (end - start)


def _one_line(mark: MarkedField) -> tuple[str, int, int]:
    """Return the line on which a text's marked piece begins, and its column."""
    if mark.span is None:
        inside = mark.field.endswith("]")
        name = mark.field.rpartition("[" if inside else ".")[2].rstrip("]")
        lead = "" if name == "expression" else f"{name}: "
        text = " ".join(mark.text.split())
        return f"{lead}{text}", len(lead), len(lead) + (len(text) if lead else 0)
    begin = mark.text.rfind("\n", 0, mark.span.start) + 1
    end = mark.text.find("\n", mark.span.start)
    line = mark.text[begin : end if end >= 0 else len(mark.text)]
    indent = len(line) - len(line.lstrip())
    start = mark.span.start - begin - indent
    line = line.strip()
    return line, start, min(mark.span.end - begin - indent, len(line))


def _told(label: str, lines: Iterable[Line]) -> Iterator[str]:
    for line, aside in lines:
        text = f"  {label:<11} {line}"
        label = ""
        if aside and max(len(text), ASIDE_COLUMN) + 2 + len(aside) > WIDEST:
            yield text
            yield f"  {label:<11} {aside}"
        elif aside:
            yield f"{text.ljust(ASIDE_COLUMN)}  {aside}"
        else:
            yield text


def short_subject(subject: str) -> str:
    """Return a subject's name as its author wrote it.

    >>> [short_subject(each) for each in ("pod default/train", "pod ml/train", "claim ml/c")]
    ['train', 'ml/train', 'claim ml/c']
    """
    kind, _, name = subject.partition(" ")
    return shortened(name) if kind == "pod" else f"{kind} {shortened(name)}"


NUMBERS = (
    "total", "nodes", "devices", "free", "most", "most_free", "wanted", "where", "best", "needed",
    "offered", "name", "message", "missing", "detail",
)  # fmt: skip


def _cause(cause: WaitingCause, spots: Spots) -> dict[str, Any]:
    facts: dict[str, Any] = {_camel(name): getattr(cause, name, None) for name in NUMBERS}
    facts["values"] = [asdict(each) for each in cause.values]
    facts["blocked"] = dict(getattr(cause, "blocked", {}))
    facts |= {"holders": list(cause.holders), "examples": list(cause.examples)}
    facts = {name: value for name, value in facts.items() if value}
    told: dict[str, Any] = {"code": cause.code, "headline": headline(cause)}
    if cause.asked:
        told["asksFor"] = [_request(each) for each in cause.asked]
    told["thereAre"] = [text.strip() for text, _ in what_exists(cause)]
    if facts:
        told["facts"] = facts
    if marks := list(_marks(cause)):
        told["places"] = [_place(each, spots) for each in marks]
    if isinstance(cause, NoAlternative):
        told["alternatives"] = [_cause(each, spots) for each in cause.causes]
    return told


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


def _marks(cause: WaitingCause) -> Iterator[MarkedField]:
    if isinstance(cause, NotTogether):
        yield from cause.marks
    elif cause.mark is not None:
        yield cause.mark


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
    if each.taints:
        found["taints"] = list(each.taints)
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

"""Why something waits, as data: one cause with its numbers, no sentences.

    Diagnosis      what waits, its cause, and what would help
    WaitingCause   a class for each kind, with one of the codes of `codes`
    Help           one change that would help, and what it would bring

`diagnose` finds them, `text` and `structured` tell them to people and to programs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Literal

from dralab.allocation.problem import Constraint
from dralab.cel.conjuncts import Comparison, Span
from dralab.explanation.conditions import Condition
from dralab.explanation.questions import NodeGroup
from dralab.scheduling.reasons import Reason
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number
from dralab.values.records import dataclass

Owner = tuple[Literal["claim", "class", "group", "pod"], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedField:
    """A place in an object: `field` of it, and the piece of `text` there that matters.

    `owner` is the object as the problem names it: ("claim", "ml/train"), ("class", "gpu").
    """

    owner: Owner
    field: str
    text: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionText:
    """One condition of a request: its text, and what it compares where that is known."""

    text: str
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request, or one alternative of it, asks for; `count` is 0 for all devices.

    `only`: the claim has no other request.
    """

    claim: str
    request: str
    class_name: str
    count: int = 1
    conditions: tuple[ConditionText, ...] = ()
    capacity: Mapping[str, Number] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    admin: bool = False
    only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """Devices that have one value: how many, and how many of them are free."""

    value: str
    devices: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCause:
    """The common fields of causes: the code, the relevant requests, and the place in the object.

    `total` devices suit, or were looked at, on `nodes` nodes; `values` are what they have,
    `examples` the first of them, `known` names that exist. `holders` are the claims that hold
    devices.
    """

    code: str
    asked: tuple[Asked, ...] = ()
    mark: MarkedField | None = None
    total: int = 0
    nodes: int = 0
    values: tuple[Offered, ...] = ()
    examples: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(WaitingCause):
    """The claim itself is wrong, or names what does not exist: no devices could help.

    `missing` is the kind of the object that is not there, `name` its name, `elsewhere` the
    namespaces that have one of this name.
    """

    text: str
    missing: str = ""
    name: str = ""
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSelector(WaitingCause):
    """An expression fails while it runs, which ends the search for the whole pod.

    `lacking` is the path that the devices do not have, if that is the reason; it fails for
    `devices` of `total`.
    """

    mark: MarkedField
    message: str
    devices: int
    example: str
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuchDevice(WaitingCause):
    """No device meets one condition of a class or a request.

    `total` devices were looked at: those of the class, or all for a condition of the class. `best`
    of what they have is the nearest of a threshold.
    """

    mark: MarkedField
    condition: ConditionText
    of_class: bool
    best: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTogether(WaitingCause):
    """Every condition is met by some device, all of them by none."""

    marks: tuple[MarkedField, ...]
    met: tuple[tuple[ConditionText, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking(WaitingCause):
    """Suitable devices lack an attribute that a constraint reads, or an amount of a capacity.

    `best` is the largest amount that one of them can give, `number` the position of the constraint.
    """

    name: str
    number: int = 0
    needed: str = ""
    best: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFew(WaitingCause):
    """Suitable devices are too few on every node, or not free.

    `free` of them could serve the request now. `most` is the largest number on one node,
    `most_free` the largest number free on one, `where` that node. `blocked` counts why the others
    are not free: in-use, taint, counters, capacity, groups. `needed` and `offered` tell of a
    counter or a capacity `name` on the node that is nearest.
    """

    most: int
    free: int
    most_free: int
    where: str
    blocked: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    needed: str = ""
    offered: str = ""
    taints: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched(WaitingCause):
    """A constraint cannot be met: `wanted` devices with one value, or with different ones.

    `values` are on the node that comes nearest, `most` devices of them agree; `free` devices are
    free. `nodes` nodes have enough of them, but not with such values. Of a total over all devices,
    `best` is the largest that a node has. `number` is the position of the constraint.
    """

    constraint: Constraint
    wanted: int
    most: int
    where: str
    free: int
    number: int = 0
    best: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Competing(WaitingCause):
    """Several requests need more devices than suit any of them; or parts that share a counter."""

    wanted: int
    devices: int
    where: str
    counter: str = ""
    needed: str = ""
    offered: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together(WaitingCause):
    """Each request could be met, all of them cannot; `conflict` is a minimal reason."""

    conflict: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAlternative(WaitingCause):
    """None of the alternatives of a request is available; the cause of each."""

    claim: str
    request: str
    causes: tuple[WaitingCause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesUnfit(WaitingCause):
    """Nodes are ruled out by rules about them: `reasons` with counts of nodes.

    `able` nodes have the devices and are ruled out; the first of `reasons` is theirs. `facts` are
    lines about what there is. `wants_devices`: the pod has claims.
    """

    reasons: tuple[tuple[Reason, int], ...]
    able: tuple[str, ...]
    detail: str = ""
    facts: tuple[str, ...] = ()
    wants_devices: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GangTooLarge(WaitingCause):
    """A gang does not start: `least` of its `members` pods have to fit at once, `fitting` do.

    `failing` is the first pod that does not fit, `cause` why it does not: None where it is not the
    devices, or where the gang has too few pods; then `why` is a sentence. A gang whose pods need
    one value of a node label (`topology`) fits best where that is `domain`.
    """

    group: str
    least: int
    members: int
    fitting: int
    failing: str = ""
    cause: WaitingCause | None = None
    why: str = ""
    topology: str = ""
    domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingThere(WaitingCause):
    """There are no nodes, no devices, or pools that cannot be used; or the search was given up."""

    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """One change that would help, the cheapest kinds first.

    spelling    write `to` at `mark` instead of what is there
    guard       write `to` at `mark`: an expression that does not fail
    wait        `who` end
    value       write `to` at `mark` instead: another value, a lower threshold
    count       ask for `number` devices
    drop        leave out what stands at `mark`
    constraint  use attribute `to` in the constraint at `mark`
    tolerate    tolerate taint `to`
    node        change a node: `to` says how (uncordon, taint …), `who` which
    move        move `who` to node `to`
    preempt     end `who`, which have a lower priority
    several     follow all of `parts`, which cannot be fewer
    add         add a node with such devices

    `now`: the scheduler places the pod then, in the whole state; otherwise `lacking` says what is
    still missing, on how many nodes. `devices` would match, `free` of them are free. `command` does
    it. `ends` says when the first of `who` ends. `edits` are what `kind` does not say, as a JSON
    patch of the object of `mark`; `taints` are the keys of those that a node loses.
    """

    kind: Literal[
        "spelling", "guard", "wait", "node", "value", "count", "constraint", "tolerate", "drop",
        "move", "preempt", "several", "add",
    ]  # fmt: skip
    now: bool = True
    mark: MarkedField | None = None
    to: str = ""
    who: tuple[str, ...] = ()
    number: int = 0
    devices: int = 0
    free: int = 0
    asked: Asked | None = None
    note: str = ""
    command: str = ""
    ends: str = ""
    edits: tuple[JsonObject, ...] = ()
    taints: tuple[str, ...] = ()
    parts: tuple["Help", ...] = ()
    lacking: tuple[tuple[Reason, int], ...] = ()

    @classmethod
    def waiting(cls, who: Iterable[str], note: str = "any") -> "Help":
        """Return that it helps to wait until one of some has ended (`any`), or `all` of them."""
        names = tuple(who)
        return cls(kind="wait", who=names, number=len(names), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why something waits: the cause, what would help, and what every group of nodes lacks.

    `unfit` names nodes that are ruled out by rules about them.
    """

    cause: WaitingCause
    subject: str = ""
    helps: tuple[Help, ...] = ()
    nodes: int = 0
    grouped: Callable[[], tuple[NodeGroup, ...]] = tuple
    unfit: tuple[tuple[Reason, tuple[str, ...]], ...] = ()
    error: str = ""
    settled: bool = True

    @property
    def code(self) -> str:
        """The stable code of the cause."""
        return self.cause.code

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """What every group of nodes lacks; computed lazily."""
        return self.grouped()

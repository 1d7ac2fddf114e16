"""Why something waits, as data: one cause with its numbers, no sentences.

    Diagnosis      what waits, its cause, and what would help
    Cause          one of the classes below; each names the codes of `codes` that it may have
    Help           one change that would help, and what it would bring

`diagnose` finds them, `text` and `structured` tell them to people and to programs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dralab.allocation.problem import Constraint
from dralab.cel.conjuncts import Comparison, Span
from dralab.explanation.conditions import Condition
from dralab.explanation.questions import NodeGroup
from dralab.scheduling.reasons import Reason
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number

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
class Refused:
    """The claim itself is wrong, or names what does not exist: no devices could help.

    `missing` is the kind of the object that is not there, `name` its name, `known` those that are,
    `elsewhere` the namespaces that have one of this name.
    """

    code: str
    text: str
    mark: MarkedField | None = None
    missing: str = ""
    name: str = ""
    known: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    asked: Asked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSelector:
    """An expression fails while it runs, which ends the search for the whole pod.

    `lacking` is the path that the devices do not have, if that is the reason; it fails for
    `devices` of `total`.
    """

    code: str
    asked: Asked
    mark: MarkedField
    message: str
    devices: int
    total: int
    example: str
    lacking: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuchDevice:
    """No device meets one condition of a class or a request.

    `total` devices were looked at: those of the class, or all for a condition of the class.
    `values` are what they have instead, `best` the nearest of a threshold, `known` the names of
    their attributes where none has the one that is asked for.
    """

    code: str
    asked: Asked
    mark: MarkedField
    condition: ConditionText
    total: int
    nodes: int
    of_class: bool
    values: tuple[Offered, ...] = ()
    best: str = ""
    known: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTogether:
    """Every condition is met by some device, all of them by none."""

    code: str
    asked: Asked
    marks: tuple[MarkedField, ...]
    met: tuple[tuple[ConditionText, int], ...]
    total: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Suitable devices lack an attribute that a constraint reads, or an amount of a capacity.

    `best` is the largest amount that one of them can give, `number` the position of the constraint.
    """

    code: str
    asked: Asked
    name: str
    total: int
    nodes: int
    number: int = 0
    mark: MarkedField | None = None
    needed: str = ""
    best: str = ""
    known: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFew:
    """Suitable devices are too few on every node, or not free.

    `total` devices suit, `free` of them could serve the request now, on `nodes` nodes. `most` is
    the largest number on one node, `most_free` the largest number free on one, `where` that node.
    `blocked` counts why the others are not free: in-use, taint, counters, capacity, groups.
    `holders` are the claims that hold devices. `needed` and `offered` tell of a counter or a
    capacity `name` on the node that is nearest.
    """

    code: str
    asked: Asked
    total: int
    nodes: int
    most: int
    free: int
    most_free: int
    where: str
    blocked: Mapping[str, int] = field(default_factory=dict)
    holders: tuple[str, ...] = ()
    name: str = ""
    needed: str = ""
    offered: str = ""
    taints: tuple[tuple[str, int], ...] = ()
    mark: MarkedField | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched:
    """A constraint cannot be met: `wanted` devices with one value, or with different ones.

    `values` are on the node that comes nearest, `most` devices of them agree. `total` devices
    suit, `free` of them are free; `nodes` nodes have enough of them, but not with such values.
    Of a total over all devices, `best` is the largest that a node has. `number` is the position of
    the constraint.
    """

    code: str
    asked: tuple[Asked, ...]
    constraint: Constraint
    wanted: int
    most: int
    where: str
    values: tuple[Offered, ...]
    total: int
    nodes: int
    free: int
    number: int = 0
    best: str = ""
    holders: tuple[str, ...] = ()
    mark: MarkedField | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Competing:
    """Several requests need more devices than suit any of them; or parts that share a counter."""

    code: str
    asked: tuple[Asked, ...]
    wanted: int
    devices: int
    where: str
    counter: str = ""
    needed: str = ""
    offered: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Each request could be met, all of them cannot; `conflict` is a minimal reason."""

    code: str
    asked: tuple[Asked, ...]
    conflict: tuple[Condition, ...]
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAlternative:
    """None of the alternatives of a request can be had; the cause of each."""

    code: str
    claim: str
    request: str
    causes: tuple["Cause", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesUnfit:
    """Nodes are ruled out by rules about them: `reasons` with counts of nodes.

    `able` nodes have the devices and are ruled out; the first of `reasons` is theirs. `facts` are
    lines about what there is. `wants_devices`: the pod has claims.
    """

    code: str
    total: int
    reasons: tuple[tuple[Reason, int], ...]
    able: tuple[str, ...]
    detail: str = ""
    mark: MarkedField | None = None
    facts: tuple[str, ...] = ()
    wants_devices: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GangTooLarge:
    """A gang does not start: `least` of its `members` pods have to fit at once, `fitting` do.

    `failing` is the first pod that does not fit, `cause` why it does not: None where it is not the
    devices, or where the gang has too few pods; then `why` is a sentence. A gang whose pods need
    one value of a node label (`topology`) fits best where that is `domain`.
    """

    code: str
    group: str
    least: int
    members: int
    fitting: int
    failing: str = ""
    cause: "Cause | None" = None
    why: str = ""
    topology: str = ""
    domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingThere:
    """There are no nodes, no devices, or pools that cannot be used; or the search was given up."""

    code: str
    detail: str = ""


Cause = (
    Refused
    | FailingSelector
    | NoSuchDevice
    | NotTogether
    | Lacking
    | TooFew
    | Unmatched
    | Competing
    | Together
    | NoAlternative
    | NodesUnfit
    | GangTooLarge
    | NothingThere
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why something waits: the cause, what would help, and what every group of nodes lacks.

    `unfit` counts nodes that are ruled out by rules about them.
    """

    subject: str
    cause: Cause
    helps: tuple[Help, ...] = ()
    nodes: int = 0
    grouped: Callable[[], tuple[NodeGroup, ...]] = tuple
    unfit: tuple[tuple[Reason, int], ...] = ()
    error: str = ""
    settled: bool = True

    @property
    def code(self) -> str:
        """The stable code of the cause."""
        return self.cause.code

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """What every group of nodes lacks; it is only found out when it is asked for."""
        return self.grouped()

"""What-if and defragment for the page: the questions as JSON, the answers of `dralab.capacity`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.capacity.changes import (
    AddNodes,
    Cordon,
    MovePod,
    RemoveNode,
    SupposedChange,
    Uncordon,
    UnknownName,
    devices_of_one,
)
from dralab.capacity.defragment import defragment
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.steps import commands, steps
from dralab.capacity.structured import structured_moves, structured_what_if
from dralab.capacity.what_if import what_if
from dralab.objects.metadata import DEFAULT_NAMESPACE, NamespacedName, key_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict
from dralab.web.remedies import TriedHelp, tried

MOST_CHANGES: Final = 100
MOST_ADDED: Final = 1_000
MOST_DEVICES: Final = 20_000
"""Devices of all added nodes: more would take the server's memory, and its thread for minutes."""
MOST_MOVES: Final = 100
KINDS: Final = ("add", "remove", "cordon", "uncordon", "move")
NAMED: Final = ("kind", "namespace", "name")


Helps = Callable[[str, str, str], Sequence[Mapping[str, Any]]]
"""The helps of the explanation of a pod or claim, by kind, namespace and name."""


def answer_what_if(
    cluster: Snapshot, model: ClusterModel, question: Mapping[str, Any], helps: Helps
) -> dict[str, Any]:
    """Return what becomes of the pods after `changes`; ApiError for a question that is wrong.

    Each change is `{"add": SHAPE|NODE, "count": N}`, `{"remove": NODE}`, `{"cordon": NODE}`,
    `{"uncordon": NODE}`, `{"move": NAMESPACE/NAME, "to": NODE}`, or `{"help": NUMBER, "of":
    {"kind", "namespace", "name"}}`: a help of an explanation, from 0.
    """
    given = question.get("changes")
    if not isinstance(given, list) or not given or len(given) > MOST_CHANGES:
        raise ApiError.bad_request(f"changes: a list of 1 to {MOST_CHANGES} changes is required")
    changes: list[SupposedChange] = []
    objects: list[JsonDict] = []
    for number, each in enumerate(given):
        if isinstance(each, dict) and "help" in each:
            found = _help(f"changes[{number}]", each, cluster, helps)
            changes += found.changes
            objects += found.objects
        else:
            changes.append(_change(number, each))
    other = None
    try:
        _check_size(model, changes)
        if objects:
            everything = [item for items in cluster.by_kind.values() for item in items]
            other = ClusterModel(replaced(everything, objects))
        return structured_what_if(what_if(model, changes, other))
    except UnknownName as error:
        raise ApiError.bad_request(str(error)) from error


def replaced(objects: Iterable[JsonDict], new: Sequence[JsonDict]) -> Iterator[JsonDict]:
    """Yield objects, some of them in another form: those of the same kind and name."""
    forms = {(item["kind"], key_of(item)): item for item in new}
    for item in objects:
        yield forms.get((item.get("kind"), key_of(item)), item)


def _help(where: str, given: Mapping[str, Any], cluster: Snapshot, helps: Helps) -> TriedHelp:
    of, number = given.get("of"), given["help"]
    if not isinstance(of, dict) or not all(isinstance(of.get(each), str) for each in NAMED):
        raise ApiError.bad_request(f"{where}.of: expected {', '.join(NAMED)}")
    known = helps(of["kind"], of["namespace"], of["name"])
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(known):
        raise ApiError.bad_request(f"{where}.help: {number!r} is not one of {len(known)} helps")
    found = tried(known[number], cluster)
    if found is None:
        raise ApiError.bad_request(f"{where}.help: no what-if tells what help {number} would do")
    return found


def answer_moves(model: ClusterModel, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the moves that make room for `pod` (NAMESPACE/NAME), or for all that wait without it.

    At most `most` pods move. ApiError for a question that is wrong.
    """
    name, most = question.get("pod") or "", question.get("most")
    if most is not None and not _is_count(most, MOST_MOVES):
        raise ApiError.bad_request(f"most: {most!r} is not a number from 1 to {MOST_MOVES}")
    pods = [each for each in model.waiting if not name or str(each.key) == name]
    if not pods:
        raise ApiError.bad_request(
            f"pod {name} does not wait for a node" if name else "no pod waits for a node"
        )
    found = defragment(model, pods, MoveCosts(model, "moves"), most=most or MOST_MOVES)
    told = structured_moves(found) | {"commands": []}
    if not found.clearings:
        return told
    told["commands"] = list(commands(steps(model, found)))
    return told


def _change(number: int, given: Any) -> SupposedChange:
    where = f"changes[{number}]"
    kind = next((name for name in KINDS if isinstance(given, dict) and name in given), "")
    if not kind:
        raise ApiError.bad_request(f"{where}: expected one of {', '.join(KINDS)}")
    name = given[kind]
    if not isinstance(name, str) or not name:
        raise ApiError.bad_request(f"{where}.{kind}: {name!r} is not a name")
    if kind == "remove":
        return RemoveNode(name)
    if kind == "cordon":
        return Cordon(name)
    if kind == "uncordon":
        return Uncordon(name)
    if kind == "move":
        to = given.get("to")
        if not isinstance(to, str) or not to:
            raise ApiError.bad_request(f"{where}.to: {to!r} is not a name")
        namespace, _, short = name.rpartition("/")
        return MovePod(NamespacedName(namespace or DEFAULT_NAMESPACE, short), to)
    count = given.get("count", 1)
    if not _is_count(count, MOST_ADDED):
        raise ApiError.bad_request(
            f"{where}.count: {count!r} is not a number from 1 to {MOST_ADDED}"
        )
    return AddNodes(name, count)


def _check_size(model: ClusterModel, changes: Sequence[SupposedChange]) -> None:
    """Refuse changes that add too much together. ApiError, UnknownName."""
    added: Counter[str] = Counter()
    for each in changes:
        if isinstance(each, AddNodes):
            added[each.like] += each.count
    nodes = added.total()
    devices = 0
    if nodes <= MOST_ADDED:
        devices = sum(count * devices_of_one(model, like) for like, count in added.items())
    for found, most, what in ((nodes, MOST_ADDED, "nodes"), (devices, MOST_DEVICES, "devices")):
        if found > most:
            raise ApiError.bad_request(
                f"changes: {found} new {what} are too many for the page, which adds at most "
                f"{most}; ask dralab what-if instead"
            )


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most

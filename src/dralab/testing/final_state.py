"""The final state of a trial, so that two trials can be compared.

What no two runs have alike is left out: uids, revisions, times, addresses, generated names (the
objects that have one are compared as a group), which node or device was chosen. Paths that differ
between runs without faults are left out as well (`varying`).
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dralab.apiserver.storage import Change, Store, Stored
from dralab.objects.metadata import annotations_of, metadata_of, owner_uids, owners_of
from dralab.testing.faults import TOUCHED
from dralab.values.json_types import JsonDict

# Not compared, and changes of them are not progress: records of what happened, and heartbeats.
IGNORED: Final = frozenset({"events", "events.k8s.io/events", "coordination.k8s.io/leases"})
VOLATILE: Final = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName",
     "observedGeneration", "deletionGracePeriodSeconds"}
)  # fmt: skip
ANY_KIND: Final = (
    "spec.nodeName", "status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs",
    "status.conditions[].message", "status.conditions[].reason", "status.containerStatuses",
    "status.allocation", "status.reservedFor", "status.devices", "spec.clusterIP",
    "spec.clusterIPs", "endpoints", "status.images", "status.nodeInfo", "spec.volumeName",
    "subsets[].addresses[].ip", "subsets[].notReadyAddresses[].ip", "spec.claimRef.resourceVersion",
    "subsets[].addresses[].nodeName", "subsets[].notReadyAddresses[].nodeName",
    "status.collisionCount", "spec.nodeSelector", "spec.pool.generation",
)  # fmt: skip
# How programs elected a leader before there were leases: an annotation that is a heartbeat.
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
# Annotations that say when something happened, and the one of a fault.
NO_STATE: Final = frozenset({TOUCHED, LEADER, "endpoints.kubernetes.io/last-change-trigger-time"})
# By which of its fields an item of a list is known, as conditions are by their type.
KEYS: Final = ("name", "type")
NOT_SET: Final = "not set"
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One thing that is in one final state and not in the other."""

    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True, slots=True)
class FinalState:
    """The objects at the end: subject (`pods default/web-*`) → its reduced objects, sorted."""

    objects: Mapping[str, Sequence[JsonDict]]

    def differences(
        self, expected: "FinalState", varying: Collection[str] = ()
    ) -> Iterator[StateDifference]:
        """Yield the differences from the expected state, except paths that vary."""
        for subject in sorted({*self.objects, *expected.objects}):
            mine, theirs = self.objects.get(subject, ()), expected.objects.get(subject, ())
            if subject in varying:
                continue
            if len(mine) != len(theirs):
                text = f"{len(mine)} at the end, {len(theirs)} without faults"
                yield StateDifference(subject, text)
                continue
            kind = subject.partition(" ")[0]
            left = Counter(_text(obj, kind, varying) for obj in mine)
            right = Counter(_text(obj, kind, varying) for obj in theirs)
            if left != right:
                yield StateDifference(subject, _told(left - right, right - left))


def final_state(store: Store, ignore: Iterable[str] = ()) -> FinalState:
    """Return the state of a store; `ignore` are paths such as `configmaps:data.at` or `jobs`."""
    ignored = _Ignored(ignore)
    stored = [
        each
        for resource in store.resources()
        if resource not in IGNORED and resource not in ignored.kinds
        for each in store.list(resource).items
    ]
    names = _generated_names(stored)
    found: dict[str, list[JsonDict]] = {}
    for each in stored:
        key = each.key
        # A provisioner names a volume after the uid of its claim.
        name = UID.sub("*", names.get(key.name, key.name))
        subject = f"{key.resource} {key.namespace}/{name}".replace(" /", " ")
        value = _reduced(each.value, names, ignored.paths(key.resource))
        found.setdefault(subject, []).append(value)
    return FinalState({subject: _sorted(found[subject]) for subject in sorted(found)})


def varying(states: Sequence[FinalState]) -> frozenset[str]:
    """Return the paths (`kind:path`) and subjects that differ between correct final states."""
    found: set[str] = set()
    first = states[0]
    for other in states[1:]:
        for subject in {*first.objects, *other.objects}:
            mine, theirs = first.objects.get(subject, ()), other.objects.get(subject, ())
            if len(mine) != len(theirs):
                found.add(subject)
                continue
            kind = subject.partition(" ")[0]
            for left, right in zip(mine, theirs, strict=True):
                found |= {f"{kind}:{path}" for path, _, _ in _different(left, right, "")}
    return frozenset(found)


def refreshed(state: FinalState, later: FinalState) -> frozenset[str]:
    """Return the paths of statuses that change when the programs are restarted at rest.

    They tell when a program looked last at what it does not watch, whatever happened before. What
    else a start changes is not among them: objects that it makes or deletes, specs that it writes.
    """
    return frozenset(
        f"{subject.partition(' ')[0]}:{path}"
        for subject in {*state.objects} & {*later.objects}
        if len(state.objects[subject]) == len(later.objects[subject])
        for left, right in zip(state.objects[subject], later.objects[subject], strict=True)
        for path, _, _ in _different(left, right, "")
        if path.startswith("status.")
    )


def effective(change: Change) -> bool:
    """Return whether a change is more than a heartbeat or an event."""
    if change.key.resource in IGNORED:
        return False
    if change.before is None or change.after is None:
        return True
    if change.key.resource != "nodes" and LEADER not in annotations_of(change.after.value):
        return True
    return bool(_steady(change.before.value) != _steady(change.after.value))


def _steady(value: JsonDict) -> Any:
    return _reduced(value, {}, frozenset())


def content(value: JsonDict) -> JsonDict:
    """Return what a program wants of an object, and whose it is: what is made anew has it again."""
    ignored = frozenset({*ANY_KIND, "metadata", "status"})
    return {**_reduced(value, {}, ignored), "owners": sorted(owner_uids(value))}


def likeness(change: Change) -> frozenset[str]:
    """Return what a change does: the same for changes of alike objects with other names.

    These are the paths that it changes, all paths of an object that it creates or deletes. Of a
    word, as a phase or the status of a condition, it has the new value as well.
    """
    before, after = (
        _steady(each.value) if each is not None else {} for each in (change.before, change.after)
    )
    if change.before is None or change.after is None:
        paths = _leaves(after or before, "")
        return frozenset({"deleted" if change.after is None else "created", *paths})
    return frozenset(
        f"{path}={new}" if isinstance(new, str) and new.isalpha() else path
        for path, _, new in _different(before, after, "")
    )


def _leaves(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of what is in a value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for item in value:
            yield from _leaves(item, f"{path}[]")
    else:
        yield path


class _Ignored:
    """The paths that a user excludes from comparison."""

    def __init__(self, given: Iterable[str]) -> None:
        self.kinds: set[str] = set()
        self._paths: dict[str, set[str]] = {}
        for each in given:
            kind, colon, path = each.partition(":")
            if colon:
                self._paths.setdefault(kind, set()).add(path)
            else:
                self.kinds.add(kind)

    def paths(self, kind: str) -> frozenset[str]:
        return frozenset({*ANY_KIND, *self._paths.get(kind, ())})


def _generated_names(stored: Iterable[Stored]) -> dict[str, str]:
    """Return generated names with their patterns: `web-x7k2p-gpu-9qw2c`: `web-*-gpu-*`."""
    prefixes = {
        each.key.name: str(prefix)
        for each in stored
        if (prefix := metadata_of(each.value).get("generateName"))
        and each.key.name.startswith(prefix)
    }
    found: dict[str, str] = {}
    # A prefix may begin with a name that was generated itself: of the pod of a claim.
    for name in sorted(prefixes, key=len):
        prefix = prefixes[name]
        longest = max((n for n in found if prefix.startswith(n)), key=len, default="")
        found[name] = f"{found.get(longest, '')}{prefix[len(longest) :]}*"
    return found


def _reduced(value: JsonDict, names: Mapping[str, str], ignored: frozenset[str]) -> JsonDict:
    metadata = metadata_of(value)
    kept: JsonDict = {
        name: item
        for name, item in metadata.items()
        if name not in VOLATILE and name != "ownerReferences"
    }
    if "name" in kept:
        kept["name"] = names.get(kept["name"], kept["name"])
    if kept.pop("deletionTimestamp", None):
        kept["deleting"] = True
    annotations = {k: v for k, v in annotations_of(value).items() if k not in NO_STATE}
    kept.pop("annotations", None)
    if annotations:
        kept["annotations"] = annotations
    kept["owners"] = sorted(
        f"{owner.get('kind')} {names.get(owner['name'], owner['name'])}"
        for owner in owners_of(value)
    )
    rest = {name: item for name, item in value.items() if name != "metadata"}
    found = {"metadata": kept, **rest}
    reduced: JsonDict = _plain(found, "", names, ignored)
    return reduced


def _plain(value: Any, path: str, names: Mapping[str, str], ignored: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _plain(item, inner, names, ignored)
            for key, item in sorted(value.items())
            if (inner := f"{path}.{key}" if path else key) not in ignored
            # A program may copy the annotation of a fault into what it makes.
            and key not in {"observedGeneration", TOUCHED}
            and not (key == "annotations" and item and item.keys() == {TOUCHED})
        }
    if isinstance(value, list):
        return [_plain(item, f"{path}[]", names, ignored) for item in _ordered(value, path)]
    if isinstance(value, str):
        if value in names:
            return names[value]
        if TIME.fullmatch(value):
            return "<time>"
        if value.startswith(("{", "[")):
            # Annotations hold objects as JSON, as of kopf and kubectl, with marks and times.
            with suppress(orjson.JSONDecodeError, RecursionError):
                return _plain(_filled(orjson.loads(value)), path, names, ignored)
        return UID.sub("<uid>", value) if len(value) >= 36 else value
    return value


def _filled(value: Any) -> Any:
    """Return a value of JSON without the mark of a fault, and without what is empty for that."""
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {key: _filled(item) for key, item in value.items() if key != TOUCHED}
    return {key: item for key, item in filled.items() if item != {} or value[key] == {}}


def _ordered(items: list[Any], path: str) -> list[Any]:
    """Return items sorted by name or type: programs may write them in any order.

    Init containers are the exception: their order says what they do.
    """
    if not path.endswith("initContainers") and all(isinstance(item, Mapping) for item in items):
        for key in KEYS:
            found = [item.get(key) for item in items]
            if all(isinstance(each, str) for each in found) and len(set(found)) == len(found):
                return sorted(items, key=lambda item: str(item[key]))
    return items


def _sorted(objects: Iterable[JsonDict]) -> list[JsonDict]:
    return sorted(objects, key=orjson.dumps)


def _text(obj: JsonDict, kind: str, varying: Collection[str]) -> str:
    masked = frozenset(path.partition(":")[2] for path in varying if path.startswith(f"{kind}:"))
    return orjson.dumps(_plain(obj, "", {}, masked)).decode() if masked else (
        orjson.dumps(obj).decode()
    )  # fmt: skip


def _different(left: Any, right: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two values differ, with both values."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            inner = f"{path}.{key}" if path else key
            if key not in left or key not in right:
                yield inner, left.get(key, NOT_SET), right.get(key, NOT_SET)
            else:
                yield from _different(left[key], right[key], inner)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for one, other in zip(left, right, strict=True):
            yield from _different(one, other, f"{path}[]")
    elif left != right:
        yield path, left, right


def _told(extra: Counter[str], missing: Counter[str]) -> str:
    """Describe how objects differ: by field if there is one on each side."""
    if len(extra) == len(missing) == 1:
        left, right = orjson.loads(next(iter(extra))), orjson.loads(next(iter(missing)))
        found = list(_different(left, right, ""))
        shown = [f"{path} is {_short(a)}, without faults {_short(b)}" for path, a, b in found[:3]]
        more = f", and {len(found) - 3} more fields" if len(found) > 3 else ""
        return "; ".join(shown) + more
    return f"{extra.total()} objects differ from those without faults"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."

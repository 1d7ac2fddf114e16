"""Histories that others have written down, as a recording: an audit log, a series of snapshots.

An audit log says what its policy let it keep: an object is known from its first write with a body
(level RequestResponse; of bindings, Request). What was there before and was never written is not in
it, nor what a write of the level Metadata has changed; `AuditLog.missing` counts those. A snapshot
was taken at the newest time that its objects tell.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from dralab.api.snapshots.kept_fields import kept
from dralab.api.snapshots.recordings import RecordedName, name_of, problem_of
from dralab.kernel.times import from_rfc3339
from dralab.objects.metadata import finalizers_of, is_deleting, metadata_of, spec_of, status_of
from dralab.runtime.client import Resource
from dralab.runtime.reading import in_hub
from dralab.runtime.recorder import RECORDED, RecordingFile
from dralab.values.json_types import JsonDict

AUDIT: Final = b'"audit.k8s.io/'
SIMKUBE: Final = b"\xa7version"
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
OF_OBJECTS: Final = frozenset({"", "status", "resize", "ephemeralcontainers"})
KINDS: Final = {(each.resource.group, each.resource.plural): each for each in RECORDED}


class AuditedWrite(NamedTuple):
    """A write that an audit log tells: an object as it is from then on; None: it is gone."""

    when: int
    of: RecordedName
    object: JsonDict | None
    is_new: bool


def is_audit_log(content: bytes) -> bool:
    """Return whether a file begins as an audit log."""
    return content.lstrip()[:1] == b"{" and AUDIT in content[:2000]


def is_simkube_trace(content: bytes) -> bool:
    """Return whether a file begins as a trace of SimKube: a map of msgpack with a version."""
    return content[:1] in {b"\x84", b"\x85", b"\x86"} and content[1:9] == SIMKUBE


class AuditLog:
    """The writes of an audit log: JSON lines of `audit.k8s.io` events, in the order of their ends.

    ValueError: a line is not one. `missing` counts writes without a body, by what and level.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.missing: Counter[str] = Counter()
        self._state: dict[RecordedName, JsonDict] = {}
        self._first: dict[RecordedName, JsonDict] = {}
        self._writes: list[AuditedWrite] = []
        events = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                event = orjson.loads(line)
                when = from_rfc3339(event["stageTimestamp"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"line {number}: {problem_of(error)}") from error
            events.append((when, number, event))
        # A log is written by several threads, and may be one of several servers.
        for when, number, event in sorted(events, key=lambda each: each[:2]):
            try:
                self._take(when, event)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"line {number}: {problem_of(error)}") from error

    def write(self, file: RecordingFile) -> None:
        """Write all changes into a recording; what there was before comes first."""
        if not self._writes:
            return
        begin = self._writes[0].when
        for of, obj in self._first.items():
            file.put(begin, of, obj, listed=True)
        for each in self._writes:
            file.put(each.when, each.of, each.object)
        file.mark(self._writes[-1].when)

    def _take(self, when: int, event: Mapping[str, Any]) -> None:
        about = event.get("objectRef") or {}
        served = KINDS.get((about.get("apiGroup", ""), about.get("resource", "")))
        code = (event.get("responseStatus") or {}).get("code") or 200
        verb, part = event.get("verb"), about.get("subresource") or ""
        if event.get("stage") != "ResponseComplete" or code >= 300 or served is None:
            return
        if verb == "deletecollection":
            self.missing[f"deletecollection of {served.resource.plural}"] += 1
        if verb not in WRITES or (part not in OF_OBJECTS and part != "binding"):
            return
        answer = event.get("responseObject") or {}
        asked = event.get("requestObject") or {}
        name = about.get("name") or metadata_of(answer).get("name") or ""
        of = RecordedName(served.kind, about.get("namespace") or "", name)
        if part == "binding":
            self._bind(when, of, asked)
            return
        is_whole = answer.get("kind", served.kind) == served.kind and "metadata" in answer
        if verb == "delete" and not (is_whole and _stays(answer)):
            self._put(when, of, None)
        elif is_whole:
            resource = Resource(
                served.resource.group, about.get("apiVersion") or served.resource.version,
                served.resource.plural, served.resource.namespaced,
            )  # fmt: skip
            obj = kept(in_hub(answer, resource, served.kind))
            gone = is_deleting(answer) and not _stays(answer)
            self._put(when, of, None if gone else obj, is_new=verb == "create")
        else:
            level = event.get("level")
            self.missing[f"{verb} of {served.resource.plural} at level {level}"] += 1

    def _bind(self, when: int, of: RecordedName, binding: Mapping[str, Any]) -> None:
        held, node = self._state.get(of), (binding.get("target") or {}).get("name")
        if held is None or not node:
            self.missing["bindings of pods without a body"] += 1
            return
        told = {"type": "PodScheduled", "status": "True"}
        others = [
            each for each in status_of(held).get("conditions") or () if each["type"] != told["type"]
        ]
        status = {**status_of(held), "conditions": [*others, told]}
        self._put(when, of, {**held, "spec": {**spec_of(held), "nodeName": node}, "status": status})

    def _put(
        self, when: int, of: RecordedName, obj: JsonDict | None, *, is_new: bool = False
    ) -> None:
        if obj is not None:
            of = name_of(obj)
            if of not in self._state and not is_new:
                self._first.setdefault(of, obj)
            self._state[of] = obj
        elif self._state.pop(of, None) is None:
            return
        self._writes.append(AuditedWrite(when, of, obj, is_new))


def write_series(file: RecordingFile, snapshots: Iterable[Iterable[JsonDict]]) -> None:
    """Write snapshots into a recording, in the order of their times: each is a list."""
    taken = [[part for each in found if (part := kept(each)) is not None] for found in snapshots]
    for objects in sorted(taken, key=newest):
        when = newest(objects)
        present = {name_of(each): each for each in objects}
        for of in sorted(set(file.state.objects) - set(present)):
            file.put(when, of, None, listed=True)
        for of, each in present.items():
            file.put(when, of, each, listed=True)
        file.mark(when)


def newest(objects: Iterable[JsonDict]) -> int:
    """Return the newest time that objects tell; 0 if they tell none."""
    times = (text for each in objects for text in _times(each) if text)
    return max(map(from_rfc3339, times), default=0)


def _times(obj: JsonDict) -> Iterator[str]:
    metadata, status = metadata_of(obj), status_of(obj)
    for condition in status.get("conditions") or ():
        yield condition.get("lastTransitionTime") or ""
    yield from (metadata.get("creationTimestamp") or "", status.get("startTime") or "")


def _stays(obj: JsonDict) -> bool:
    """Return whether an object that is being deleted is still there."""
    seconds = metadata_of(obj).get("deletionGracePeriodSeconds")
    return bool(finalizers_of(obj)) or bool(seconds)

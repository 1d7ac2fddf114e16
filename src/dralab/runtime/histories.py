"""Histories that others have written, as a recording: audit logs, snapshots, SimKube's traces.

An audit log says what its policy let it keep: an object is known from its first write with a body
(level RequestResponse; of bindings, Request). What was there before and was never written is not in
it, nor what a write of the level Metadata has changed; `AuditLog.missing` counts those. A snapshot
was taken at the newest time that its objects tell. A trace of SimKube has what owns pods, and when
pods of an owner ran, but neither nodes nor waits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from dralab.api.snapshots.kept_fields import kept
from dralab.api.snapshots.recordings import RecordedName, name_of, problem_of
from dralab.kernel.clock import SECOND
from dralab.kernel.extras import require
from dralab.kernel.times import from_rfc3339
from dralab.objects.metadata import finalizers_of, is_deleting, metadata_of, spec_of, status_of
from dralab.runtime.client import Resource
from dralab.runtime.reading import in_hub
from dralab.runtime.recorder import RECORDED, RecordingFile
from dralab.values.json_types import JsonDict

AUDIT: Final = b'"audit.k8s.io/'
SIMKUBE: Final = b"\xa7version"
SIMKUBE_VERSION: Final = 2
# These make pods by the clock or by the nodes: how many is known where SimKube noted their lives.
UNCOUNTED: Final = frozenset({"CronJob", "DaemonSet"})
MOST_PODS: Final = 1_000_000
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


class SimkubeRun(NamedTuple):
    """A pod of an owner: when it came and went, in seconds; `end` None: it was not seen to go."""

    owner: str
    start: int
    end: int | None
    template: Mapping[str, Any]


class SimkubeTrace:
    """The pods of a trace of SimKube (sk-tracer exports it): MessagePack, version 2.

    Where SimKube tracked the lives of an owner's pods, each begins when it started. Otherwise an
    owner has its replicas from when it was applied until they change, or it is deleted. `missing`
    counts owners whose pods are not known. ValueError: it is not one.
    """

    def __init__(self, content: bytes) -> None:
        require("simkube", "a trace of SimKube")
        import msgpack

        self.missing: Counter[str] = Counter()
        self._count = 0
        try:
            trace = msgpack.unpackb(content, strict_map_key=False, object_pairs_hook=_simkube_map)
            if trace["version"] != SIMKUBE_VERSION:
                raise ValueError(f"version {trace['version']} is not known, only {SIMKUBE_VERSION}")
            self._lives = trace["pod_lifecycles"]
            self._paths = {
                kind: tracked.get("podSpecTemplatePaths") or ()
                for kind, tracked in trace["config"]["trackedObjects"].items()
            }
            events = trace["events"]
            self.begin, self.end = events[0]["ts"], events[-1]["ts"]
            self.runs = sorted(self._runs(events), key=lambda each: (each.start, each.owner))
        except (msgpack.UnpackException, AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"is not a trace of SimKube: {error!r}") from error

    def _runs(self, events: Sequence[Mapping[str, Any]]) -> Iterator[SimkubeRun]:
        """Yield the pods; `held` has the replicas of each owner since when they are there."""
        held: dict[tuple[str, str], tuple[Mapping[str, Any], list[int]]] = {}
        first: dict[tuple[str, str], Mapping[str, Any]] = {}
        for event in events:
            for obj in event["applied_objs"]:
                key = _simkube_key(obj)
                template = self._template(key[0], obj)
                first.setdefault(key, template)
                if key in self._lives:
                    continue
                before, since = held.get(key, (template, []))
                wanted = self._replicas(key[0], obj)
                keeps = min(wanted, len(since)) if before == template else 0
                yield from self._gone(key, before, since[keeps:], event["ts"])
                held[key] = template, [*since[:keeps], *[event["ts"]] * (wanted - keeps)]
            for obj in event["deleted_objs"]:
                key = _simkube_key(obj)
                yield from self._gone(key, *held.pop(key, ({}, [])), event["ts"])
        for key, (template, since) in held.items():
            yield from self._gone(key, template, since, None)
        for (kind, name), lives in self._lives.items():
            for life in (each for of_hash in lives.values() for each in of_hash):
                if life != "Empty":
                    ((_, times),) = life.items()
                    start, end = times if isinstance(times, list) else (times, None)
                    yield SimkubeRun(name, start, end, first[kind, name])

    @staticmethod
    def _gone(
        key: tuple[str, str], template: Mapping[str, Any], since: Iterable[int], end: int | None
    ) -> Iterator[SimkubeRun]:
        for start in since:
            yield SimkubeRun(key[1], start, end, template)

    def _template(self, kind: str, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return where an object has its pods; with several places, the first."""
        usual = {"Pod": "", "CronJob": "/spec/jobTemplate/spec/template"}
        paths = self._paths.get(kind) or (usual.get(obj["kind"], "/spec/template"),)
        found: Any = obj
        for part in filter(None, paths[0].split("/")):
            found = found[part]
        return {"metadata": metadata_of(found), "spec": spec_of(found)}

    def _replicas(self, kind: str, obj: Mapping[str, Any]) -> int:
        if obj["kind"] in UNCOUNTED:
            self.missing[kind] += 1
            return 0
        count = spec_of(obj).get("replicas", spec_of(obj).get("parallelism", 1))
        if not isinstance(count, int) or count < 0 or self._count + count > MOST_PODS:
            name = metadata_of(obj)["name"]
            raise ValueError(f"{kind} {name} has {count!r} replicas: at most {MOST_PODS:,} in all")
        self._count += count
        return count

    def write(self, file: RecordingFile, fleet: Iterable[JsonDict]) -> None:
        """Write the pods into a recording, on nodes and devices that are there from the start."""
        for part in filter(None, map(kept, fleet)):
            if part["kind"] != "Pod":
                file.put(self.begin * SECOND, name_of(part), part, listed=True)
        changes: list[tuple[int, int, JsonDict]] = []
        for number, run in enumerate(self.runs):
            namespace, _, name = run.owner.rpartition("/")
            metadata: JsonDict = {"name": f"{name}-{number}", "namespace": namespace}
            metadata["uid"] = f"simkube-{number}"
            if labels := run.template["metadata"].get("labels"):
                metadata["labels"] = labels
            pod = kept({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                        "spec": run.template["spec"], "status": {"phase": "Running"}})  # fmt: skip
            changes.append((run.start, number, pod or {}))
            if run.end is not None:
                over = {"status": {"phase": "Succeeded"}}
                changes.append((run.end, number, {**(pod or {}), **over}))
        for when, _, obj in sorted(changes, key=lambda each: each[:2]):
            file.put(when * SECOND, name_of(obj), obj)
        file.mark(self.end * SECOND)


def _simkube_map(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map; the keys of lives are pairs, which come as lists."""
    return {tuple(key) if isinstance(key, list) else key: value for key, value in pairs}


def _simkube_key(obj: Mapping[str, Any]) -> tuple[str, str]:
    metadata = metadata_of(obj)
    return (
        f"{obj['apiVersion']}.{obj['kind']}",
        f"{metadata.get('namespace', '')}/{metadata['name']}",
    )


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

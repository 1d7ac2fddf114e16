"""Answers the questions of the page about one source of objects, and remembers the answers.

Everything here may take seconds on a large cluster: it runs in a thread of its own, never in the
loop of a server. One thread uses a desk at a time.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from dralab import __version__
from dralab.api.status import ApiError
from dralab.explanation.answers import NoResult, already_allocated, answers
from dralab.explanation.names import templates_of
from dralab.explanation.text import ObjectFields
from dralab.kernel.clock import SECOND, Clock, rfc3339
from dralab.objects.metadata import metadata_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict
from dralab.web.capacity_answers import answer_moves, answer_what_if
from dralab.web.fleet_map import fleet_map
from dralab.web.pod_events import event_list, owners_of_events
from dralab.web.pod_story import story, usable
from dralab.web.remedies import tried
from dralab.web.sources import ObjectSource, UnreadableClusterError
from dralab.web.waiting_list import causes, named, waiting_list

# What is followed tells cheaply whether something changed; anything else has to be listed.
SHORTEST: Final = SECOND // 2
SHORTEST_LISTED: Final = 5 * SECOND
# Reading and computing take at most a part of this of one core, however fast the cluster changes.
REST: Final = 8
PATIENCE: Final = 20 * SECOND
MOST_REMEMBERED: Final = 500


@dataclass(slots=True)
class Reading:
    """The objects as they were read once, and what was computed of them.

    `version` names the content. `walked` have their devices in `walker`: they came before what was
    asked last.
    """

    objects: Sequence[JsonDict]
    version: str
    revision: str | None
    when: int
    cost: int
    cluster: Snapshot
    walker: Snapshot | None = None
    walk: Sequence[Pending] = ()
    walked: int = 0
    known: dict[tuple[str, ...], bytes] = field(default_factory=dict)
    model: ClusterModel | None = None


class Desk:
    """The answers about one source; `title` is what the page shows as its name."""

    def __init__(self, source: ObjectSource, clock: Clock, title: str, *, live: bool) -> None:
        self.source = source
        self.title = title
        self.live = live
        self._clock = clock
        self._reading: Reading | None = None

    def about(self) -> bytes:
        """Return what the page shows of the source itself, without reading it."""
        return orjson.dumps(
            {"title": self.title, "live": self.live, "kind": "cluster", "dralab": __version__}
        )

    def changes(self) -> bytes:
        """Check that the source may be followed: it changes, and can be read. ApiError."""
        if not self.live:
            raise ApiError("NotFound", f"{self.title} does not change", details={})
        self._current()
        return b"{}"

    @property
    def follows(self) -> bool:
        """Whether the source tells of its changes."""
        return self.source.follows

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in any thread, after each change of the source; return how to stop."""
        return self.source.follow(changed)

    def until_next(self) -> int:
        """Return the nanoseconds before which nothing is read anew, however much changes."""
        known = self._reading
        return 0 if known is None else max(0, self._due(known) - self._clock.now())

    def release(self) -> None:
        """Release what only followers need, if there are none."""
        self.source.release()

    def fleet(self, have: str = "") -> bytes:
        """Return the fleet (`fleet_map`) with its version; only the version if the page has it."""
        return self._view("fleet", fleet_map, have)

    def waiting(self, have: str = "") -> bytes:
        """Return what waits (`waiting_list`) with its version, likewise."""
        return self._view("waiting", waiting_list, have)

    def causes(self) -> bytes:
        """Return the waiting pods by cause (`causes`), without answers that take over PATIENCE."""
        return self._answered(("causes",), self._causes)

    def story(self, kind: str, namespace: str, name: str) -> bytes:
        """Return the story of a pod or claim. ApiError NotFound."""
        return self._answered(
            ("story", kind, namespace, name),
            lambda reading: story(reading.cluster, kind, namespace, name),
        )

    def events(self, kind: str, namespace: str, name: str) -> bytes:
        """Return the events of a pod and its claims, or of a claim, and `why` where they are not.

        They are read each time: the page asks for those of the story it shows. ApiError NotFound.
        """
        told = orjson.loads(self.story(kind, namespace, name))
        found: list[JsonDict] = []
        try:
            for about, short in owners_of_events(told):
                found += self.source.events(about, namespace, short)
        except UnreadableClusterError as error:
            return orjson.dumps({**event_list(found), "why": error.message})
        return orjson.dumps({**event_list(found), "why": ""})

    def explanation(self, kind: str, namespace: str, name: str) -> bytes:
        """Return what `dralab explain` says of a pod or claim. ApiError NotFound."""
        return self._answered(
            ("explain", kind, namespace, name),
            lambda reading: self._explained(reading, kind, namespace, name),
        )

    def usable(self, kind: str, namespace: str, name: str) -> bytes:
        """Return the devices that a pod or claim could use. ApiError NotFound."""
        return self._answered(
            ("usable", kind, namespace, name),
            lambda reading: usable(reading.cluster, kind, namespace, name),
        )

    def what_if(self, question: Mapping[str, Any]) -> bytes:
        """Return what a change would do. ApiError."""
        reading = self._current()

        def helps(kind: str, namespace: str, name: str) -> Sequence[Mapping[str, Any]]:
            told = orjson.loads(self.explanation(kind, namespace, name))
            return list(told.get("helps") or ())

        return orjson.dumps(answer_what_if(reading.cluster, _model(reading), question, helps))

    def moves(self, question: Mapping[str, Any]) -> bytes:
        """Return moves that make room. ApiError."""
        return orjson.dumps(answer_moves(_model(self._current()), question))

    def _causes(self, reading: Reading) -> dict[str, Any]:
        end = self._clock.now() + PATIENCE
        return causes(Snapshot(reading.objects), lambda: self._clock.now() > end)

    # --- reading, and remembering

    def _view(self, what: str, view: Callable[[Snapshot], dict[str, Any]], have: str) -> bytes:
        reading = self._current()
        if have == reading.version:
            return orjson.dumps({"version": reading.version, "same": True})
        found = reading.known.get((what,))
        if found is None:
            began = self._clock.now()
            told = view(reading.cluster)
            found = reading.known[what,] = orjson.dumps(
                {
                    "version": reading.version,
                    "asOf": rfc3339(reading.when),
                    "notJudged": list(self.source.not_judged),
                    **told,
                }
            )
            reading.cost += self._clock.now() - began
        return found

    def _answered(
        self, key: tuple[str, ...], answer: Callable[[Reading], dict[str, Any] | None]
    ) -> bytes:
        reading = self._current()
        found = reading.known.get(key)
        if found is None:
            told = answer(reading)
            if told is None:
                _, kind, namespace, name = key
                raise ApiError("NotFound", f"{kind} {namespace}/{name} not found", details={})
            if len(reading.known) > MOST_REMEMBERED:
                reading.known.clear()
            found = reading.known[key] = orjson.dumps({"version": reading.version, **told})
        return found

    def _explained(
        self, reading: Reading, kind: str, namespace: str, name: str
    ) -> dict[str, Any] | None:
        """Explain a pod after the earlier ones got their devices, continuing from the last one."""
        if reading.walker is None:
            reading.walk = reading.cluster.pending(every=True)
        asked = named(reading.walk, kind, namespace, name)
        if not asked:
            return already_allocated(reading.cluster, f"{namespace}/{name}")
        place = next(at for at, each in enumerate(reading.walk) if each is asked[0])
        if reading.walker is None or place < reading.walked:
            reading.walker, reading.walked = Snapshot(reading.objects), 0
        left = reading.walk[reading.walked :]
        reading.walked = place + 1
        spots = ObjectFields(templates_of(reading.walker))
        try:
            found = next(answers(reading.walker, left, asked, spots=spots))
        except NoResult as error:
            reading.walker = None
            raise ApiError("Timeout", str(error)) from error
        helps = found.get("helps") or ()
        can_try = [at for at, each in enumerate(helps) if tried(each, reading.cluster) is not None]
        return found | {"whatIf": can_try}

    def _current(self) -> Reading:
        """Return the objects as they are now, or were a moment ago. ApiError."""
        known, now = self._reading, self._clock.now()
        try:
            revision = self.source.revision()
            if known is not None:
                if revision is not None and revision == known.revision:
                    return known
                if known.when <= now < self._due(known):
                    return known
            objects = self.source.read()
        except UnreadableClusterError as error:
            reason = {401: "Unauthorized", 403: "Forbidden"}.get(error.code, "ServiceUnavailable")
            raise ApiError(reason, error.message) from error
        version = _version(objects)
        if known is not None and known.version == version:
            known.revision, known.when = revision, now
            return known
        cluster = Snapshot(objects)
        cost = self._clock.now() - now
        self._reading = Reading(objects, version, revision, now, cost, cluster)
        return self._reading

    def _due(self, known: Reading) -> int:
        """Return when the objects may be read again."""
        least = SHORTEST if self.source.follows else SHORTEST_LISTED
        return known.when + max(least, REST * known.cost)


def _model(reading: Reading) -> ClusterModel:
    """Return the model for questions about changes; it is not changed."""
    if reading.model is None:
        reading.model = ClusterModel(reading.objects)
    return reading.model


def _version(objects: Sequence[JsonDict]) -> str:
    """Return a name of the content of objects, by their resource versions."""
    digest = hashlib.sha256()
    for item in objects:
        metadata = metadata_of(item)
        names = (item.get("kind"), metadata.get("uid"), metadata.get("name"))
        digest.update(repr((*names, metadata.get("resourceVersion"))).encode())
    return digest.hexdigest()[:16]

"""The oracles of every trial, and the user's invariants.

During the trial: no device and no volume twice, and the invariants that hold always. At the end:
nothing is owned by what does not exist, nothing waits for a finalizer that nothing removes. The
comparison with the run without faults is in `judging`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from dralab import cel
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Change, Key, Stored
from dralab.cel.json_values import from_json
from dralab.objects.claims import allocation_of, holds
from dralab.objects.metadata import is_deleting, metadata_of, owner_uids, spec_of, uid_of
from dralab.testing.final_state import IGNORED, UID, content
from dralab.testing.history import TrialHistory, TrialViolation
from dralab.testing.trial_scenario import ObjectInvariant, TrialScenario
from dralab.values.json_types import JsonDict

CLAIMS: Final = "resource.k8s.io/resourceclaims"
VOLUME_CLAIMS: Final = "persistentvolumeclaims"
GARBAGE: Final = "garbage-collector-controller"
# What holds data, or takes what holds them with it. One deletion more is not made good by making
# an object of the same name.
DURABLE: Final = frozenset(
    {"persistentvolumeclaims", "persistentvolumes", "namespaces", "apps/statefulsets",
     "apiextensions.k8s.io/customresourcedefinitions"}
)  # fmt: skip
Report = Callable[[str, str], None]


class Watchdog:
    """Judges changes as they happen, and the final state."""

    def __init__(self, scenario: TrialScenario, server: ApiServer, report: Report) -> None:
        self.scenario = scenario
        self.server = server
        self._report = report
        self._recent: list[tuple[int, str]] = []
        self.deletions: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.recreations: Counter[str] = Counter()
        self.writers: dict[Key, set[str]] = {}
        """The programs that wrote to an object which one of them made."""
        self._gone: dict[Key, tuple[str, JsonDict]] = {}
        self._always: dict[str, list[_CompiledInvariant]] = {}
        self._at_end: dict[str, list[_CompiledInvariant]] = {}
        self._compiled = False

    def changed(self, change: Change) -> None:
        """Check a new change."""
        if not self._compiled:
            self._compile()
        if change.after is None:
            return
        for invariant in self._always.get(change.key.resource, ()):
            before = change.before.value if change.before is not None else None
            self._judge(invariant, change.after, before)
        if change.key.resource == CLAIMS:
            self._devices()
        elif change.key.resource == VOLUME_CLAIMS:
            self._volumes()

    def count(self, change: Change, now: int) -> None:
        """Remember what changed, for a trial that does not come to rest."""
        place = f"{change.key.resource} {change.key.namespace}/{change.key.name}"
        self._recent.append((now, place.replace(" /", " ")))

    def note_write(self, change: Change, program: str) -> None:
        """Note who made an object and who deletes it; finalizers may delay a deletion."""
        key, before, after = change.key, change.before, change.after
        if before is None and after is not None:
            self.writers[key] = {program}
            if self._gone.pop(key, None) == (program, content(after.value)):
                self.recreations[_place(key, after.value)] += 1
        elif key in self.writers:
            self.writers[key].add(program)
        if before is None or is_deleting(before.value):
            return
        if after is None or is_deleting(after.value):
            place = _place(key, before.value)
            self.deletions[place] += 1
            if key.resource in DURABLE:
                self.losses[place] += 1
            else:
                self._gone[key] = (program, content(before.value))

    def busiest(self, since: int) -> str:
        """Return which objects changed most after a time."""
        counts = Counter(place for when, place in self._recent if when >= since)
        return ", ".join(f"{place} changed {n} times" for place, n in counts.most_common(3))

    def at_end(self, history: TrialHistory) -> list[TrialViolation]:
        """Return the violations of the final state and the history."""
        found: list[TrialViolation] = []
        before, self._report = self._report, lambda *told: found.append(TrialViolation(*told))
        try:
            self._judge_all(history)
        finally:
            self._report = before
        return found

    def _judge_all(self, history: TrialHistory) -> None:
        if not self._compiled:
            self._compile()
        stored = list(self._everything())
        alive = {uid_of(each.value) for each in stored}
        for each in stored:
            if is_deleting(each.value):
                finalizers = ", ".join(each.value["metadata"].get("finalizers") or ["none"])
                self._report("stuck", f"{_title(each)} is never deleted (finalizers: {finalizers})")
            owners = owner_uids(each.value)
            if owners and self._collects and not alive.intersection(owners):
                self._report("orphan", f"{_title(each)} is owned by nothing that exists")
            for invariant in (
                *self._at_end.get(each.key.resource, ()),
                *self._always.get(each.key.resource, ()),
            ):
                self._judge(invariant, each, None)
        for check in self.scenario.checks:
            # Of its own: what it does to them must not be what the next one judges.
            objects = [orjson.loads(orjson.dumps(each.value)) for each in stored]
            try:
                wrong = check.check(objects, history)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code
                self._report("invariant", f"{check.name} fails: {type(error).__name__}: {error}")
                continue
            if wrong:
                self._report("invariant", f"{check.name}: {wrong}")

    @property
    def _collects(self) -> bool:
        """Whether a garbage collector runs."""
        wanted = self.scenario.cluster.controllers
        tested = {program.name for program in self.scenario.programs}
        return wanted is None or GARBAGE in {*wanted, *tested}

    def _everything(self) -> Iterator[Stored]:
        store = self.server.store
        for resource in store.resources():
            if resource not in IGNORED:
                yield from store.list(resource).items

    # --- nothing twice --------------------------------------------------------------------------

    def _devices(self) -> None:
        held: dict[tuple[str, str, str], str] = {}
        for claim in self.server.store.list(CLAIMS).items:
            for part in holds(allocation_of(claim.value)):
                if part.share:
                    continue
                device = (part.driver, part.pool, part.device)
                other = held.setdefault(device, _title(claim))
                if other != _title(claim):
                    name = "/".join(device)
                    text = f"device {name} is given to {other} and to {_title(claim)}"
                    self._report("device-twice", text)

    def _volumes(self) -> None:
        held: dict[str, str] = {}
        for claim in self.server.store.list(VOLUME_CLAIMS).items:
            volume = spec_of(claim.value).get("volumeName")
            if volume and held.setdefault(volume, _title(claim)) != _title(claim):
                text = f"volume {volume} is bound to {held[volume]} and to {_title(claim)}"
                self._report("volume-twice", text)

    # --- invariants -----------------------------------------------------------------------------

    def _compile(self) -> None:
        self._compiled = True
        for invariant in self.scenario.invariants:
            kind = self.server.resources.kinds.of_object(invariant.api_version, invariant.kind)
            if kind is None:
                text = f"{invariant.name}: no server serves {invariant.api_version}"
                self._report("invariant", f"{text} {invariant.kind}")
                continue
            table = self._always if invariant.always else self._at_end
            table.setdefault(kind.hub, []).append(_CompiledInvariant(invariant))

    def _judge(self, compiled: "_CompiledInvariant", stored: Stored, before: Any) -> None:
        wrong = compiled.broken_by(stored.value, before)
        if wrong:
            self._report("invariant", f"{compiled.invariant.name}: {_title(stored)}: {wrong}")


class _CompiledInvariant:
    def __init__(self, invariant: ObjectInvariant) -> None:
        self.invariant = invariant
        self._program = cel.compile_expression(invariant.expression, cel.of_objects())

    def broken_by(self, value: Any, before: Any) -> str:
        """Return the violation; empty if the expression is true."""
        variables = {"object": from_json(value), "oldObject": from_json(before)}
        try:
            met, _ = self._program.value(variables)
        except cel.CelError as error:
            return f"{self.invariant.expression}: {error}"
        return "" if met is True else f"not {self.invariant.expression}"


def _place(key: Key, value: JsonDict) -> str:
    """Return an object's place, the same in any run: generated names and uids are not."""
    prefix = metadata_of(value).get("generateName")
    generated = prefix and key.name.startswith(prefix)
    name = f"{prefix}*" if generated else UID.sub("*", key.name)
    return f"{key.resource} {key.namespace}/{name}".replace(" /", " ")


def _title(stored: Stored) -> str:
    key = stored.key
    return f"{key.resource} {key.namespace}/{key.name}".replace(" /", " ")

"""What the status of a Job may say, and how it may change.

Source: k8s.io/kubernetes `pkg/apis/batch/validation` (ValidateJobStatusUpdate) with the options of
`pkg/registry/batch/job`. Most rules are asked only of parts that change: another controller may
need a while after the spec was changed.
"""

from collections.abc import Iterator
from typing import Final

from dralab.api import fields
from dralab.api.core.statuses import count_errors, status_of
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject

CONDITIONS: Final = "status.conditions"
OMITTED: Final = "<value omitted>"
COUNTS: Final = ("active", "succeeded", "failed", "ready", "terminating")
TERMINAL: Final = ("Failed", "Complete", "FailureTarget")


class IndexesError(ValueError):
    """A text that does not list indexes."""


def job_status_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return the errors of a changed status of a Job."""
    return list(_Change(new, old).errors())


class _Change:
    """A change of a status: both, and what differs."""

    def __init__(self, new: JsonObject, old: JsonObject) -> None:
        self.spec: JsonObject = new.get("spec") or {}
        self.new, self.old = status_of(new), status_of(old)
        self.now, self.before = _true_conditions(self.new), _true_conditions(self.old)
        self.finished = bool(self.now & {"Complete", "Failed"})
        self.ended = self.finished != bool(self.before & {"Complete", "Failed"})

    def errors(self) -> Iterator[FieldError]:
        """Yield the errors."""
        yield from count_errors(self.new, COUNTS)
        yield from self._uncounted()
        yield from self._conditions()
        yield from self._end()
        yield from self._indexes()
        ready, active = self.new.get("ready"), self.new.get("active") or 0
        if self._changed("ready", "active") and ready is not None and ready > active:
            why = "cannot set more ready pods than active"
            yield fields.invalid_value("status.ready", ready, why)
        yield from self._transitions()

    def _changed(self, *parts: str) -> bool:
        return any(self.new.get(part) != self.old.get(part) for part in parts)

    def _turned(self, *kinds: str) -> bool:
        return any((kind in self.now) != (kind in self.before) for kind in kinds)

    def _uncounted(self) -> Iterator[FieldError]:
        pods, seen = self.new.get("uncountedTerminatedPods") or {}, set()
        for part in ("succeeded", "failed"):
            for index, uid in enumerate(pods.get(part) or ()):
                path = f"status.uncountedTerminatedPods.{part}[{index}]"
                if not uid:
                    yield fields.invalid_value(path, uid, "must not be empty")
                elif uid in seen:
                    yield fields.duplicate(path, uid)
                seen.add(uid)

    def _conditions(self) -> Iterator[FieldError]:
        complete, failed = "Complete" in self.now, "Failed" in self.now
        target, met = "FailureTarget" in self.now, "SuccessCriteriaMet" in self.now
        for wrong, changed, why in (
            (complete and failed, self._turned("Complete", "Failed"),
             "cannot set Complete=True and Failed=true conditions"),
            (complete and target, self._turned("Complete", "FailureTarget"),
             "cannot set Complete=True and FailureTarget=true conditions"),
            (failed and not target, self._turned("Failed") or self._changed("failedIndexes"),
             "cannot set Failed=True condition without the FailureTarget=true condition"),
            (complete and not met, self._turned("Complete", "SuccessCriteriaMet"),
             "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
            (met and failed, True, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
            (met and target, True,
             "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
            (complete and not met and self.spec.get("successPolicy") is not None, True,
             "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"),
        ):  # fmt: skip
            if wrong and changed:
                yield fields.invalid_value(CONDITIONS, OMITTED, why)

    def _end(self) -> Iterator[FieldError]:
        """Yield what a finished Job lacks, and what only an unfinished one may have."""
        started, ended = self.new.get("startTime"), self.new.get("completionTime")
        complete, path = "Complete" in self.now, "status.completionTime"
        if self._turned("Complete") or self._changed("completionTime"):
            if ended and not complete:
                why = "cannot set completionTime when there is no Complete=True condition"
                yield fields.invalid_value(path, ended, why)
            if complete and not ended:
                yield fields.required(path, "completionTime is required for Complete jobs")
        times_changed = self._changed("startTime", "completionTime")
        if times_changed and started and ended and ended < started:
            why = "must be equal to or after `startTime`"
            yield fields.invalid_value(path, ended, why)
        if not self.finished:
            return
        for part in ("active", "terminating"):
            number = self.new.get(part) or 0
            if number > 0 and (self.ended or self._changed(part)):
                why = f"{part}>0 is invalid for finished job"
                yield fields.invalid_value(f"status.{part}", number, why)
        nothing_to_do = self.spec.get("suspend") is True and self.spec.get("completions") == 0
        if not started and (self.ended or self._changed("startTime")) and not nothing_to_do:
            yield fields.required("status.startTime", "startTime is required for finished job")
        pods = self.new.get("uncountedTerminatedPods") or {}
        if any(pods.values()) and (self.ended or self._changed("uncountedTerminatedPods")):
            shown = {"Succeeded": pods.get("succeeded"), "Failed": pods.get("failed")}
            why = "must be empty for finished job"
            yield fields.invalid_value("status.uncountedTerminatedPods", shown, why)

    def _indexes(self) -> Iterator[FieldError]:
        done, failed = self.new.get("completedIndexes") or "", self.new.get("failedIndexes")
        count, by_index = self.spec.get("completions"), self.spec.get("backoffLimitPerIndex")
        done_path, failed_path = "status.completedIndexes", "status.failedIndexes"
        if self._changed("completedIndexes") and count is not None:
            yield from _format_errors(done, count, done_path)
        known = count is not None and by_index is not None and failed is not None
        if self._changed("failedIndexes") and known:
            yield from _format_errors(failed or "", count or 0, failed_path)
        if self._changed("completedIndexes") and done and not self._is_indexed():
            why = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield fields.invalid_value(done_path, done, why)
        if self._changed("failedIndexes") and by_index is None and failed is not None:
            why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            yield fields.invalid_value(failed_path, failed, why)
        if self._changed("completedIndexes", "failedIndexes") and count is not None and failed:
            common = _common_index(done, failed, count)
            if common is not None:
                why = f"failedIndexes and completedIndexes overlap at index: {common}"
                yield fields.invalid_value(failed_path, failed, why)

    def _is_indexed(self) -> bool:
        return self.spec.get("completionMode") == "Indexed"

    def _transitions(self) -> Iterator[FieldError]:
        """Yield changes that take something back which is final."""
        for kind in TERMINAL:
            if kind in self.before - self.now:
                why = f"cannot disable the terminal {kind}=True condition"
                yield fields.invalid_value(CONDITIONS, OMITTED, why)
        scales = self._is_indexed() and self.spec.get("completions") == self.spec.get("parallelism")
        for part in ("failed",) if scales else ("failed", "succeeded"):
            count = self.new.get(part) or 0
            if count < (self.old.get(part) or 0):
                why = f"cannot decrease the {part} counter"
                yield fields.invalid_value(f"status.{part}", count, why)
        done, before = self.new.get("completionTime"), self.old.get("completionTime")
        if done and before and done != before:
            yield fields.invalid_value("status.completionTime", done, "field is immutable")
        resumes = "Suspended" in self.before and _is_false(self.new, "Suspended")
        if (
            self.old.get("startTime")
            and self._changed("startTime")
            and not resumes
            and not self.spec.get("suspend")
        ):
            why = "field is immutable for unsuspended job once set"
            yield fields.invalid_value("status.startTime", self.new.get("startTime"), why)
        if "SuccessCriteriaMet" in self.before - self.now:
            why = "cannot disable the SuccessCriteriaMet=True condition"
            yield fields.invalid_value(CONDITIONS, OMITTED, why)
        if "Complete" in self.before and "SuccessCriteriaMet" in self.now - self.before:
            why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
            yield fields.invalid_value(CONDITIONS, OMITTED, why)


def _true_conditions(status: JsonObject) -> frozenset[str]:
    """Return the types of the conditions that are true; of several of a type the first counts."""
    first: dict[str, str] = {}
    for condition in status.get("conditions") or ():
        first.setdefault(condition.get("type") or "", condition.get("status") or "")
    return frozenset(kind for kind, state in first.items() if state == "True")


def _is_false(status: JsonObject, kind: str) -> bool:
    states = (
        item.get("status") for item in status.get("conditions") or () if item.get("type") == kind
    )
    return next(states, None) == "False"


def _format_errors(text: str, count: int, path: str) -> list[FieldError]:
    try:
        _intervals(text, count)
    except IndexesError as error:
        why = f"error parsing {path.removeprefix('status.')}: {error}"
        return [fields.invalid_value(path, text, why)]
    return []


def _intervals(text: str, count: int) -> list[tuple[int, int]]:
    """Return the first and last index of each part of a text such as `0-2,5`; IndexesError."""
    found: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        first, last = _interval(part, count)
        if found and found[-1][1] >= first:
            raise _out_of_order(found[-1][1], first)
        found.append((first, last))
    return found


def _interval(part: str, count: int) -> tuple[int, int]:
    limits = part.split("-")
    if len(limits) > 2:
        raise IndexesError(
            f'the fragment "{part}" violates the requirement that an index interval can have at '
            "most two parts separated by '-'"
        )
    numbers = []
    for text in limits:
        if not (text.isascii() and text.removeprefix("+").isdecimal()):
            raise IndexesError(f'cannot convert string to integer for index: "{text}"')
        if int(text) >= count:
            raise IndexesError(f'too large index: "{text}"')
        numbers.append(int(text))
    if len(numbers) > 1 and numbers[0] >= numbers[1]:
        raise _out_of_order(numbers[0], numbers[1])
    return numbers[0], numbers[-1]


def _out_of_order(before: int, now: int) -> IndexesError:
    return IndexesError(f"non-increasing order, previous: {before}, current: {now}")


def _common_index(done: str, failed: str, count: int) -> int | None:
    """Return the first index that both lists have; parts that cannot be read are left out."""
    both = [_readable(text, count) for text in (done, failed)]
    common = [
        max(left[0], right[0])
        for left in both[0]
        for right in both[1]
        if left[0] <= right[1] and right[0] <= left[1]
    ]
    return min(common, default=None)


def _readable(text: str, count: int) -> list[tuple[int, int]]:
    found = []
    for part in text.split(",") if text else ():
        try:
            found.append(_interval(part, count))
        except IndexesError:
            continue
    return found

"""Events, in their core form; those of events.k8s.io must be complete.

Source: k8s.io/kubernetes `pkg/apis/core/validation/events.go`.
"""

from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict

LONGEST: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
TYPES: Final = frozenset({"Normal", "Warning"})
KEPT: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count",
    "type", "eventTime", "action", "related",
)  # fmt: skip


class EventStrategy(Strategy):
    """Events."""

    creates_on_update = True
    reporter = "reportingComponent"

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors: an event lives beside what it is about, and says who reports it."""
        about = (value.get("involvedObject") or {}).get("namespace") or ""
        mine = value["metadata"].get("namespace") or ""
        path, why = "involvedObject.namespace", "does not match event.namespace"
        if value.get("eventTime") is None:
            if about == mine or (not about and mine in {"default", ""}):
                return []
            return [fields.invalid_value(path, about, why)]
        errors = []
        if not about and mine not in {"default", "kube-system"}:
            errors.append(fields.invalid_value(path, about, why))
        reporter = value.get("reportingComponent") or ""
        if not reporter:
            errors.append(fields.required(self.reporter))
        errors += fields.each(self.reporter, reporter, names.qualified_problems(reporter))
        for part, longest in LONGEST.items():
            text = value.get(part) or ""
            if not text and part != "message":
                errors.append(fields.required(part))
            if len(text.encode()) > longest:
                # Upstream does not show what is too long.
                why = f"can have at most {longest} characters"
                errors.append(fields.invalid_value(part, "", why))
        return errors


class NewEventStrategy(EventStrategy):
    """Events that came by events.k8s.io: complete, and without what only older clients set."""

    reporter = "reportingController"

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new event."""
        errors = super().validate(value) + _series_errors(value)
        if value.get("eventTime") is None:
            errors.append(fields.required("eventTime"))
        if (kind := value.get("type") or "") not in TYPES:
            errors.append(fields.invalid_value("type", "", f"has invalid value: {kind}"))
        source = value.get("source") or {}
        older = {part: value.get(part) for part in ("firstTimestamp", "lastTimestamp", "count")}
        older["source"] = source.get("component") or source.get("host")
        return errors + [
            fields.invalid_value(part, "", "needs to be unset")
            for part, given in older.items()
            if given
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: only the series goes on."""
        errors = super().validate(new)
        if new.get("series") != old.get("series"):
            errors += _series_errors(new)
        names_of = {"reportingComponent": "reportingController"}
        for part in (*KEPT, "reportingComponent", "reportingInstance"):
            if new.get(part) != old.get(part):
                at = names_of.get(part, part)
                errors.append(fields.invalid_value(at, new.get(part), "field is immutable"))
        return errors


def _series_errors(value: JsonDict) -> list[FieldError]:
    series = value.get("series")
    if series is None:
        return []
    errors = []
    if (series.get("count") or 0) < 2:
        errors.append(fields.invalid_value("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(fields.required("series.lastObservedTime"))
    return errors

"""Ages and lists of labels in the form that people read.

Source: k8s.io/apimachinery `util/duration`, k8s.io/kubernetes `pkg/printers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.values.records import dataclass

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
UNSET: Final = "<unset>"
DAY: Final = 24
YEAR: Final = 365 * DAY
LONGEST: Final = (1 << 63) - 1  # nanoseconds: Go's time.Duration stays there


def human(nanoseconds: int) -> str:
    """Return a duration in at most two units: the longer, the coarser.

    >>> human(97 * 60 * SECOND), human(179 * SECOND), human(50 * 3600 * SECOND)
    ('97m', '2m59s', '2d2h')
    """
    seconds = int(min(nanoseconds, LONGEST) / SECOND)
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 2 * DAY:
        return f"{hours}h"
    if hours < 8 * DAY:
        return _two(hours // DAY, "d", hours % DAY, "h")
    if hours < 2 * YEAR:
        return f"{hours // DAY}d"
    if hours < 8 * YEAR:
        return _two(hours // YEAR, "y", hours // DAY % 365, "d")
    return f"{hours // YEAR}y"


def _two(large: int, unit: str, small: int, below: str) -> str:
    return f"{large}{unit}{small}{below}" if small else f"{large}{unit}"


@dataclass(frozen=True, slots=True)
class Elapsed:
    """A cell that tells how long ago `when` is, in nanoseconds, between two texts."""

    when: int
    before: str = ""
    after: str = ""

    def at(self, now: int) -> str:
        """Return what the cell shows at a time."""
        return f"{self.before}{human(now - self.when)}{self.after}"


def since(time: Any, before: str = "", after: str = "") -> Elapsed | str:
    """Return the cell of an RFC 3339 time."""
    if not isinstance(time, str) or not time:
        return f"{before}{UNKNOWN}{after}"
    try:
        return Elapsed(from_rfc3339(time), before, after)
    except ValueError:
        return f"{before}{UNKNOWN}{after}"


def age(obj: Mapping[str, Any]) -> Elapsed | str:
    """Return how old an object is."""
    return since(obj["metadata"].get("creationTimestamp"))


def joined(items: Sequence[Any], *, most: int | None = None, empty: str = "", by: str = ",") -> str:
    """Return items in a row; beyond `most`, how many more there are."""
    if not items:
        return empty
    shown = items if most is None else items[:most]
    text = by.join(map(str, shown))
    rest = len(items) - len(shown)
    return f"{text} + {rest} more..." if rest else text


def labels(found: Mapping[str, str] | None) -> str:
    """Return labels as a row of pairs, sorted."""
    return joined([f"{key}={value}" for key, value in sorted((found or {}).items())], empty=NONE)


def selector(found: Mapping[str, Any] | None) -> str:
    """Return a label selector as a query."""
    if not found:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((found.get("matchLabels") or {}).items())]
    words = {"In": "in", "NotIn": "notin"}
    for item in found.get("matchExpressions") or ():
        operator = item.get("operator", "")
        if operator in words:
            values = ",".join(sorted(item.get("values") or ()))
            parts.append(f"{item['key']} {words[operator]} ({values})")
        else:
            parts.append(f"!{item['key']}" if operator == "DoesNotExist" else item["key"])
    return joined(sorted(parts), empty=NONE)


def yes(value: Any) -> str:
    """Return a bool as a column shows it; `<unset>` if it is not a bool."""
    return UNSET if value is None else "True" if value else "False"

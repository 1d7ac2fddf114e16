"""Compares a response with the recorded one, except for values that differ between runs.

Recorded `TIME` and `UID` stand for any time and uid, `JWT` for any token. Revisions and
generated names differ from run to run, but one that was recorded twice must be one here, too:
`Correspondence` remembers which stands for which.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from dralab.values.records import dataclass

AGE: Final = re.compile(r"(\d+[smhdy])+|<unknown>")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|admin")
ADDRESS: Final = re.compile(r"10\.0\.0\.\d+")
GENERATED: Final = re.compile(r"g-[a-z0-9]{5}")
NUMBER: Final = re.compile(r"(?<=current: )\d+|(?<=record \()\d+")
RECORD_UID: Final = re.compile(r"(?<=UID in record \()[^)]+")
# Values that say nothing about behaviour.
MASKED: Final = frozenset(
    {"serverAddress", "storageVersionHash", "gitCommit", "goVersion", "compiler"}
)


@dataclass(slots=True)
class Correspondence:
    """Which revisions, names and tokens of the recording correspond to those of this run."""

    revisions: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def revision(self, there: str, here: str) -> bool:
        """Return whether a revision of this run can be that of the recording; remember it."""
        if there in {"0", "1"} and there == here:
            return True
        known = self.revisions.setdefault(there, here)
        return known == here


def differences(there: Any, here: Any, same: Correspondence, path: str = "") -> Iterator[str]:
    """Yield where an answer differs from the recorded one, as sentences."""
    if isinstance(there, dict) and isinstance(here, dict):
        yield from _mappings(there, here, same, path)
    elif isinstance(there, list) and isinstance(here, list):
        yield from _lists(there, here, same, path)
    elif not _equal(there, here, same, path):
        yield f"{path or 'the answer'}: {_shown(there)} was recorded, this is {_shown(here)}"


def _mappings(
    there: Mapping[str, Any], here: Mapping[str, Any], same: Correspondence, path: str
) -> Iterator[str]:
    for key in there:
        at = f"{path}.{key}" if path else key
        if key not in here:
            yield f"{at}: {_shown(there[key])} was recorded, and is missing"
        else:
            yield from differences(there[key], here[key], same, at)
    for key in here:
        if key not in there:
            at = f"{path}.{key}" if path else key
            yield f"{at}: {_shown(here[key])} was not recorded"


def _lists(there: list[Any], here: list[Any], same: Correspondence, path: str) -> Iterator[str]:
    if path.endswith("paths"):
        # Recorded up to some length.
        here = here[: len(there)]
    if path.endswith("columnDefinitions") and here and isinstance(here[0], dict):
        parts = ("name", "type", "format", "priority")
        here = [[column.get(part) for part in parts] for column in here]
    if path.endswith("managedFields"):
        # Entries come in the order of their times, which are not in the recording.
        there, here = sorted(there, key=_owner), sorted(here, key=_owner)
    if len(there) != len(here):
        yield f"{path}: {len(there)} were recorded, these are {len(here)}"
        return
    for index, (one, other) in enumerate(zip(there, here, strict=True)):
        yield from differences(one, other, same, f"{path}[{index}]")


def _owner(entry: Any) -> tuple[str, ...]:
    return tuple(str(entry.get(part, "")) for part in ("manager", "operation", "subresource"))


def _equal(there: Any, here: Any, same: Correspondence, path: str) -> bool:
    name = path.rpartition(".")[2]
    if name in MASKED:
        return True
    if not isinstance(there, str) or not isinstance(here, str):
        return bool(there == here) and type(there) is type(here)
    if name == "resourceVersion":
        return same.revision(there, here)
    if name == "continue" and there:
        same.tokens[there] = here
        return _same_token(there, here, same)
    for stands, pattern in (("TIME", TIME), ("UID", UID)):
        if there == stands:
            return pattern.fullmatch(here) is not None
    if there == "JWT":
        return here.count(".") == 2
    if "cells" in path and AGE.fullmatch(there):
        return AGE.fullmatch(here) is not None
    if GENERATED.fullmatch(there) and GENERATED.fullmatch(here):
        return same.names.setdefault(there, here) == here
    if name.startswith("clusterIP") and ADDRESS.fullmatch(there):
        return ADDRESS.fullmatch(here) is not None
    return _text(there) == _text(here)


def _text(text: str) -> str:
    return RECORD_UID.sub("UID", NUMBER.sub("N", text))


def _same_token(there: str, here: str, same: Correspondence) -> bool:
    one, other = _token(there), _token(here)
    if one.get("start") != other.get("start"):
        return False
    return same.revision(str(one.get("rv")), str(other.get("rv")))


def _token(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def same_text(there: str, here: str) -> bool:
    """Return whether a text begins as the recorded one, which may have been cut off."""
    pattern = re.escape(there).replace("TIME", TIME.pattern).replace("UID", UID.pattern)
    pattern = re.sub(r'(resourceVersion:\\ ")\d+', r"\1\\d+", pattern)
    return re.match(pattern, here) is not None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"

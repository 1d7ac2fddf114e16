"""Objects in files: YAML of several documents, JSON, lists.

Reading is tolerant: a document that is wrong is told with file, line, document, object and field,
and the rest is still read and checked. What may be in an object of which kind is a `Check`; the
kinds of resource.k8s.io are checked here, readers of other APIs bring their own. Directories,
archives and standard input are left to `sources`.

An object that a server has stored (it has a uid and a creation time) may come from a newer
Kubernetes: its unknown fields are noted instead of refused.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.api.fields import FieldError
from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.files import is_snapshot, unpacked
from dralab.api.snapshots.recordings import is_recording
from dralab.api.yaml_documents import MAX_DEPTH, YamlError, documents
from dralab.files.reading import read
from dralab.files.sources import MAX_BYTES, SourceError, SourceFile, files_of
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

UNKNOWN: Final = "unknown field"
"""How the detail of an error begins that is about a field which a kind does not have."""
# A gathered dump has logs and settings of all kinds: only files with such objects are parsed.
RELEVANT: Final = re.compile(
    rb"""\bkind["']?\s*:\s*["']?(?:Node|Pod|PodGroup|PodDisruptionBudget|PriorityClass|Device\w+"""
    rb"""|Resource(?:Slice|Claim|ClaimTemplate|Class|Pool)|Deployment|ReplicaSet|StatefulSet"""
    rb"""|ReplicationController|DaemonSet|Job)?(?:List)?["']?\s*[,}\r\n]"""
)
INDEX: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an object was written: file, document (from 1), line (from 1), place in a List.

    Document and line are 0 if a file cannot be read at all.
    """

    file: str
    document: int = 1
    line: int = 1
    inside: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}" if self.line else self.file
        if self.document:
            text += f": document {self.document}"
        return f"{text}: {self.inside}" if self.inside else text


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object and where it was written; `checked` is its form after defaulting, in the hub."""

    object: JsonDict
    origin: Origin

    @property
    def kind(self) -> str:
        """The kind, such as ResourceClaim."""
        return str(self.object.get("kind", ""))

    @property
    def group(self) -> str:
        """The API group, "" for core/v1."""
        return str(self.object.get("apiVersion", "")).rpartition("/")[0]

    @property
    def namespace(self) -> str:
        """The namespace, "" where none is written."""
        return str((self.object.get("metadata") or {}).get("namespace") or "")

    @property
    def name(self) -> str:
        """The name, "" where none is written."""
        return str((self.object.get("metadata") or {}).get("name") or "")

    @property
    def title(self) -> str:
        """The object as messages call it: `ResourceClaim default/c0`."""
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else (f"{self.kind} {self.name}")
        )


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One thing wrong with the input: a field of an object, or a document that cannot be read.

    >>> str(ManifestProblem(Origin("a.yaml", 2, 7), "Pod p", "spec: Required value"))
    'a.yaml:7: document 2: Pod p: spec: Required value'
    """

    origin: Origin
    object: str
    message: str
    field: str = ""
    error: FieldError | None = None

    def __str__(self) -> str:
        return (
            f"{self.origin}: {self.object}: {self.message}"
            if self.object
            else (f"{self.origin}: {self.message}")
        )


@dataclass(slots=True)
class Manifests:
    """What was read: the valid objects, in the order of the input, and all problems.

    `newer` counts the unknown fields of stored objects, by kind and path. `skipped` are files of
    a gathered dump that have no object of interest. `is_snapshot`: all objects are those of one
    snapshot, which has each once.
    """

    objects: list[Manifest] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    newer: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: set[str] = field(default_factory=set)
    is_snapshot: bool = False

    def of_kind(self, kind: str, group: str | None = None) -> list[Manifest]:
        """Return the objects of a kind."""
        return [
            item
            for item in self.objects
            if item.kind == kind and (group is None or item.group == group)
        ]


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """The result of a check: the normalized object, its errors, and unknown fields."""

    object: JsonDict
    errors: Sequence[FieldError] = ()
    unknown: Sequence[FieldError] = ()


Check = Callable[[JsonDict], CheckedObject | None]
"""Judges one object; None: the check does not apply to the kind."""
Progress = Callable[[int, int], None]


def load(
    sources: Iterable[str | Path],
    checks: Sequence[Check] = (),
    *,
    stdin: Callable[[], bytes] | None = None,
    max_bytes: int = MAX_BYTES,
    progress: Progress = lambda _files, _objects: None,
) -> Manifests:
    """Read every object of files, directories, archives and standard input ("-").

    An object with errors is left out of `objects`; every error of every object is in `problems`,
    with the line of its field. `progress` gets how many files and objects were begun.
    """
    result = Manifests()
    objects = 0

    def begun(item: JsonDict) -> CheckedObject:
        nonlocal objects
        objects += 1
        progress(files, objects)
        return _checked(item, checks)

    for files, found in enumerate(files_of(sources, stdin, max_bytes=max_bytes), 1):
        progress(files, objects)
        if isinstance(found, SourceError):
            result.problems.append(_unreadable(found.name, found.why))
        elif is_relevant(found):
            _load_one(found, begun, result)
        else:
            result.skipped.add(found.name)
    return result


def is_relevant(file: SourceFile) -> bool:
    """Return whether to parse a file: a quick look at the bytes.

    Of what is gathered, files without objects are not, and those with stored objects only if
    their kinds matter for devices. What a user wrote is, so that no mistake is passed over.
    """
    if not file.gathered or RELEVANT.search(file.content) is not None:
        return True
    is_stored = b"creationTimestamp" in file.content and b"uid" in file.content
    return b"kind" in file.content and not is_stored


def located(problems: Sequence[ManifestProblem]) -> list[ManifestProblem]:
    """Return problems with the lines of their fields, if their files can be read again."""
    by_file: dict[str, dict[int, Mapping[str, int]]] = {}
    for problem in problems:
        name = problem.origin.file
        if problem.field and name not in by_file:
            by_file[name] = {}
            with suppress(OSError, YamlError):
                content = read(name, MAX_BYTES)
                by_file[name] = {
                    item.number: item.positions for item in documents(content, positions=True)
                }
    found = []
    for problem in problems:
        lines = by_file.get(problem.origin.file, {}).get(problem.origin.document)
        if lines and problem.field:
            line = field_line(lines, problem.origin, problem.field)
            found.append(replace(problem, origin=replace(problem.origin, line=line)))
        else:
            found.append(problem)
    return found


def objects_of(name: str, content: bytes) -> Iterator[Manifest | ManifestProblem]:
    """Yield the objects of one file, Lists taken apart, and what cannot be read of it."""
    if name.endswith(".json") or content[:1] == b"{":
        try:
            yield from _taken_apart(orjson.loads(content), Origin(name))
        except orjson.JSONDecodeError as error:
            if name.endswith(".json"):
                yield ManifestProblem(
                    Origin(name, 1, error.lineno), "", f"is not JSON: {error.msg}"
                )
                return
        else:
            return
    number = 0
    try:
        for document in documents(content):
            number = document.number
            for path, line in document.repeated:
                text = f"{path}: the key is given twice"
                yield ManifestProblem(Origin(name, number, line), "", text)
            if document.value is not None:
                yield from _taken_apart(document.value, Origin(name, number, document.line))
    except YamlError as error:
        yield ManifestProblem(Origin(name, number + 1, error.line), "", error.message)


def _unreadable(name: str, why: str) -> ManifestProblem:
    return ManifestProblem(Origin(name, 0, 0), "", f"cannot be read: {why}")


def _load_one(
    source: SourceFile, check: Callable[[JsonDict], CheckedObject], result: Manifests
) -> None:
    if is_snapshot(source.content):
        _load_snapshot(source, check, result)
        return
    result.is_snapshot = False
    wrong: list[tuple[Manifest, Sequence[FieldError]]] = []
    for found in objects_of(source.name, source.content):
        if isinstance(found, ManifestProblem):
            result.problems.append(found)
            continue
        if source.gathered and not found.object.keys() & {"apiVersion", "kind"}:
            result.skipped.add(source.name)  # settings of tools lie beside what was gathered
            continue
        checked = check(found.object)
        if checked.unknown:
            result.newer += unknown_fields(found.object, checked.unknown)
        if checked.errors:
            wrong.append((found, checked.errors))
        else:
            result.objects.append(Manifest(checked.object, found.origin))
    result.problems += _problems(source.content, wrong)


def _load_snapshot(
    source: SourceFile, check: Callable[[JsonDict], CheckedObject], result: Manifests
) -> None:
    """Add what a server had checked, in the hub's versions, each object once.

    A recording is text that anybody may have changed: its objects are checked again.
    """
    try:
        objects = unpacked(source.content)
    except SnapshotError as error:
        result.problems.append(ManifestProblem(Origin(source.name, 0, 0), "", str(error)))
        return
    origin = Origin(source.name, 1, 0)
    result.is_snapshot = not result.objects
    recorded = is_recording(source.content)
    for found in (Manifest(item, origin) for item in objects):
        errors = check(found.object).errors if recorded else ()
        title = found.title.strip()
        result.problems += [
            ManifestProblem(origin, title, str(error), error=error) for error in errors
        ]
        if not errors:
            result.objects.append(found)


def is_stored(obj: Mapping[str, Any]) -> bool:
    """Return whether an object comes from a server: it has a uid and a creation time."""
    metadata = obj.get("metadata")
    return (
        isinstance(metadata, dict)
        and isinstance(metadata.get("uid"), str)
        and isinstance(metadata.get("creationTimestamp"), str)
    )


def as_stored(
    given: Mapping[str, Any], errors: Iterable[FieldError]
) -> tuple[list[FieldError], list[FieldError]]:
    """Return the errors of an object's shape, and apart from them the fields that are unknown.

    For what a user writes an unknown field is an error like any other; for what a server has
    stored it is a sign of a newer version.
    """
    errors = list(errors)
    if not is_stored(given):
        return errors, []
    unknown = [error for error in errors if error.detail.startswith(UNKNOWN)]
    return [error for error in errors if error not in unknown], unknown


def unknown_fields(obj: JsonDict, errors: Iterable[FieldError]) -> Counter[tuple[str, str]]:
    """Count the unknown fields among an object's errors, by kind and path without list indexes."""
    return Counter(
        (str(obj["kind"]), INDEX.sub("[]", error.field))
        for error in errors
        if error.detail.startswith(UNKNOWN)
    )


def _checked(given: JsonDict, checks: Sequence[Check]) -> CheckedObject:
    errors = list(_identity_errors(given))
    if not errors:
        for check in checks:
            found = check(given)
            if found is not None:
                return found
    return CheckedObject(given, errors)


def _identity_errors(given: JsonDict) -> Iterator[FieldError]:
    for name, example in (("apiVersion", "resource.k8s.io/v1"), ("kind", "ResourceClaim")):
        if not isinstance(given.get(name), str) or not given[name]:
            yield FieldError("FieldValueRequired", name, "", f"such as {example}")
    metadata = given.get("metadata")
    if not isinstance(metadata, dict):
        yield FieldError("FieldValueRequired", "metadata", "", "a mapping with a name")
    elif not isinstance(metadata.get("name"), str) or not metadata["name"]:
        yield FieldError("FieldValueRequired", "metadata.name", "", "every object needs a name")
    elif not isinstance(metadata.get("namespace") or "", str):
        yield FieldError(
            "FieldValueTypeInvalid", "metadata.namespace", metadata["namespace"], "must be a string"
        )


def _taken_apart(value: Any, origin: Origin) -> Iterator[Manifest | ManifestProblem]:
    if not isinstance(value, dict):
        shown = json.dumps(value, default=str)[:40]
        yield ManifestProblem(
            origin, "", f"is not an object: expected a mapping with a kind, found {shown}"
        )
        return
    kind, items = value.get("kind"), value.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield Manifest(value, origin)
        return
    for index, item in enumerate(items):
        inside = Origin(origin.file, origin.document, origin.line, f"items[{index}]")
        if not isinstance(item, dict):
            yield ManifestProblem(inside, "", "is not an object")
            continue
        if kind != "List":
            item = {"apiVersion": value.get("apiVersion"), "kind": kind[:-4]} | item  # noqa: PLW2901 - items of typed lists have no kind
        yield Manifest(item, inside)


def _problems(
    content: bytes, wrong: Sequence[tuple[Manifest, Sequence[FieldError]]]
) -> Iterator[ManifestProblem]:
    """Yield errors with the lines of their fields: the file is read again, now with positions."""
    if not wrong:
        return
    lines: dict[int, Mapping[str, int]] = {}
    with suppress(YamlError):  # told already; JSON that is no YAML has no lines
        lines = {item.number: item.positions for item in documents(content, positions=True)}
    for found, errors in wrong:
        known = lines.get(found.origin.document, {})
        for error in errors:
            line = field_line(known, found.origin, error.field)
            origin = Origin(found.origin.file, found.origin.document, line, found.origin.inside)
            yield ManifestProblem(origin, found.title.strip(), str(error), error=error)


def field_line(known: Mapping[str, int], origin: Origin, path: str) -> int:
    """Return the line of a field, or of the nearest thing around it that is written."""
    full = f"{origin.inside}.{path}" if origin.inside else path
    while full:
        if full in known:
            return known[full]
        full = full[: max(full.rfind("."), full.rfind("["), 0)]
    return origin.line


__all__ = [
    "MAX_DEPTH",
    "Check",
    "CheckedObject",
    "Manifest",
    "ManifestProblem",
    "Manifests",
    "Origin",
    "as_stored",
    "field_line",
    "is_relevant",
    "is_stored",
    "load",
    "located",
    "objects_of",
    "unknown_fields",
]  # fmt: skip

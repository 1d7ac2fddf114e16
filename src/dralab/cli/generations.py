"""Shared by the commands about API generations: reading and detecting documents."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from dralab.api.manifests import Origin, is_relevant
from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.files import is_snapshot, unpacked
from dralab.api.yaml_documents import YamlError, documents
from dralab.cli._options import opt
from dralab.cli._own_generation import found as found_in
from dralab.cli._own_generation import named, own
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.files.sources import MAX_BYTES, SourceError, files_of
from dralab.objects.metadata import metadata_of
from dralab.prototypes.findings import Finding, NormalizedDocument, invalid
from dralab.prototypes.generations import GENERATIONS
from dralab.values.json_types import JsonDict

READABLE = tuple(GENERATIONS)
# Where only the driver knows the devices, commands look but place no pod.
API_NAMES = tuple(each.name for each in GENERATIONS.values() if not each.by_driver)
FILES: Final = opt(
    "A manifest, a directory or archive (.tar, .tar.gz) of manifests, or - for standard input. May "
    "be repeated.",
    flags="-f --filename",
    metavar="FILE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDocument:
    """A document of the input, with its place and the lines of its fields."""

    origin: Origin
    item: Any
    report: NormalizedDocument
    lines: dict[str, int]

    @property
    def title(self) -> str:
        """The object's name in messages."""
        if not isinstance(self.item, dict):
            return "a list"
        metadata = metadata_of(self.item)
        return f"{self.item.get('kind', 'no kind')} {metadata.get('name', '')}".strip()

    def line(self, finding: Finding) -> int:
        """Return the line of a finding's field, or of the nearest enclosing field."""
        return nearest_line(self.lines, finding.field) or self.origin.line


def nearest_line(lines: Mapping[str, int], path: str) -> int:
    """Return the line of a field, or of the nearest field around it; 0 if there is none.

    Fields may be written in another case than messages name them.
    """
    if path in lines:
        return lines[path]
    written, path = {key.lower(): line for key, line in lines.items()}, path.lower()
    while path:
        if path in written:
            return written[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return 0


def raw(files: Iterable[str]) -> list[tuple[Origin, Any, dict[str, int]]]:
    """Return the documents of files, directories and standard input, with the lines of fields."""
    found: list[tuple[Origin, Any, dict[str, int]]] = []
    for name, content in _contents(files):
        if is_snapshot(content):
            found += _of_snapshot(name, content)
            continue
        try:
            for document in documents(content, positions=True):
                if document.value is not None:
                    origin = Origin(name, document.number, document.line)
                    found += _taken_apart(origin, document.value, dict(document.positions))
        except YamlError as error:
            place = f"{name}:{error.line}" if error.line else name
            raise UnusableInput(f"{place}: {error.message}") from None
    return found


def _of_snapshot(name: str, content: bytes) -> list[tuple[Origin, Any, dict[str, int]]]:
    try:
        return [(Origin(name), item, {}) for item in unpacked(content)]
    except SnapshotError as error:
        raise UnusableInput(f"{name}: {error}") from None


def _taken_apart(
    origin: Origin, value: Any, lines: dict[str, int]
) -> Iterator[tuple[Origin, Any, dict[str, int]]]:
    """Yield a document, or each object of a List, such as `-o json` prints."""
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list) or not str(value.get("kind")).endswith("List"):
        yield origin, value, lines
        return
    for number, item in enumerate(items):
        start = f"items[{number}]"
        own = {
            path.removeprefix(start).removeprefix("."): line
            for path, line in lines.items()
            if path.startswith((f"{start}.", f"{start}["))
        }
        line = lines.get(start, origin.line)
        yield Origin(origin.file, origin.document, line, start), item, own


def chosen(items: Iterable[Any], api: str | None, *, readable: Sequence[str] = API_NAMES) -> str:
    """Return the generation to read documents as. UsageError if it is not clear.

    `readable` are those that the command understands.
    """
    if api:
        return api
    items = list(items)
    found, mine = found_in(items), own()
    if mine is not None and (not found or mine.name in found):
        return mine.name
    if unreadable := sorted(found & {*READABLE} - {*readable}):
        name = unreadable[0]
        raise click.UsageError(
            f"the input is {name} DRA, whose devices only the driver knows: convert it with "
            f"dralab convert --to v1, or serve it with dralab up --api v1,{name}"
        )
    if len(found) == 1:
        return found.pop()
    if not found:
        held = ", ".join(sorted({_kind(item) for item in items})) or "no objects"
        raise click.UsageError(
            f"the input has no object of a device API; it has {held}. To choose an API, add --api "
            f"{'|'.join(API_NAMES)}"
        )
    names = ", ".join(sorted(found))
    raise click.UsageError(f"the input mixes {names}: choose one with --api")


def _kind(item: Any) -> str:
    if not isinstance(item, dict):
        return "a document that is not an object"
    return str(item.get("kind") or "an object without a kind")


def read(files: Sequence[str], api: str) -> list[InputDocument]:
    """Return the documents of the input as one older generation reads them."""
    documents = raw(files)
    reports = named(api).read_all([item for _, item, _ in documents])
    return [
        InputDocument(origin=origin, item=item, report=_native(item, report, api), lines=lines)
        for (origin, item, lines), report in zip(documents, reports, strict=True)
    ]


def _native(item: Any, report: NormalizedDocument, api: str) -> NormalizedDocument:
    """Return a report that refuses a document of another generation than the one to read."""
    others = found_in([item]) - {api}
    if api == "evolution":
        others.discard("k8srm")  # legacy there: `objects` converts it
    if not others:
        return report
    other = others.pop()
    text = f"of {other}, not of {api}: convert it with `dralab convert --to {api}`"
    return replace(report, findings=(invalid("apiVersion", text),))


def objects(files: Sequence[str], api: str) -> list[JsonDict]:
    """Return the objects of files in one generation; exit with code 2 where that cannot be.

    Documents of k8srm among those of dra-evolution are converted, as their authors meant to.
    """
    found = good(read(files, api))
    older = [item for item in found if "k8srm" in found_in([item])]
    if api != "evolution" or not older:
        return found
    from dralab.prototypes.conversion import from_k8srm
    from dralab.prototypes.conversion.to_evolution import ToEvolution

    scene = from_k8srm.read(older)
    made = ToEvolution(scene).objects()
    lost = [note for note in scene.notes if note.level == "lost"]
    for note in lost:
        echo(f"Error: {note}", err=True)
    if lost:
        sys.exit(2)
    echo(f"converted from k8srm to evolution: {len(older)} of {len(found)} documents", err=True)
    generation = named(api)
    rest = [item for item in found if item not in older]
    return [*rest, *(generation.read(item).document for item in made)]


def good(documents_read: Iterable[InputDocument]) -> list[JsonDict]:
    """Return the normalized objects; exit with code 2 and every error if a document is invalid."""
    problems, objects = [], []
    for each in documents_read:
        if each.report.state == "invalid":
            problems += [
                f"{each.origin.file}:{each.line(f)}: {each.title}: {f}"
                for f in each.report.findings
                if f.level == "invalid"
            ]
        else:
            objects.append(each.report.document)
    if problems:
        for problem in problems:
            echo(f"Error: {problem}", err=True)
        sys.exit(2)
    return objects


def holds(files: Iterable[str], marks: Iterable[bytes]) -> bool:
    """Return whether files contain one of some texts; unreadable ones are reported elsewhere."""
    marks = tuple(marks)
    try:
        return any(mark in content for _, content in _contents(files) for mark in marks)
    except click.ClickException:
        return False


def stdin() -> bytes:
    """Return standard input, which can be read only once but is needed by several steps."""
    kept: dict[str, bytes] = click.get_current_context().meta
    if "dralab.stdin" not in kept:
        kept["dralab.stdin"] = sys.stdin.buffer.read(MAX_BYTES + 1)
    return kept["dralab.stdin"]


def _contents(files: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for found in files_of(files, stdin, max_bytes=MAX_BYTES):
        if isinstance(found, SourceError):
            raise UnusableInput(f"{found.name}: cannot be read: {found.why}")
        if is_relevant(found):
            yield found.name, found.content

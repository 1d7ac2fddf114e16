"""Selects the objects of a list, a watch or a deletecollection.

Label selectors are read by `values.labels`; field selectors (`status.phase!=Failed,...`) here.
Sources: k8s.io/apimachinery `fields`, and the registry strategies for the fields of each kind.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.storage import Stored
from dralab.objects.metadata import status_of
from dralab.values import labels
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass
from dralab.values.remembering import remembered

Getter = Callable[[JsonObject], str]
# Values that JSON writes as they are, and that no field has by default (as "0" and "false").
LITERAL: Final = re.compile(r"(?!(?:true|false)$)[A-Za-z][A-Za-z0-9._/-]*")
PARTS: Final = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)
TERM: Final = re.compile(r"(?P<field>.*?)(?P<op>!=|==|=)(?P<value>.*)", re.DOTALL)
ESCAPED: Final = re.compile(r"\\(.|$)|([,=])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on one field: `wanted` is False for `!=`."""

    field: str
    value: str
    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Both selectors of a request, for one kind.

    `name` is the only name that can match, where the field selector says so; `exact` is another
    field with the one value that can match (field, reader, value), for indexes. `fits` is what
    `accepts` asks of an object; `by_version` says that it asks for fields that the version of a
    custom kind declares, which the stored version may not have.
    """

    accepts: Callable[[Stored], bool] | None
    fits: Callable[[JsonObject], bool] | None = None
    by_version: bool = False
    name: str = ""
    exact: tuple[str, Getter, str] | None = None
    empty: bool = True


EVERYTHING: Final = Selection(accepts=None)


@remembered(1024, longest=2048)
def parse_fields(text: str) -> tuple[Term, ...]:
    r"""Return the terms of a field selector; `\,`, `\=` and `\\` stand for themselves.

    >>> parse_fields("spec.nodeName=n1,status.phase!=Failed")[1].wanted
    False
    """
    terms = []
    for part in _split(text):
        found = TERM.fullmatch(part)
        if found is None:
            raise ApiError.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        value = ESCAPED.sub(_unescaped, found["value"])
        terms.append(Term(found["field"], value, found["op"] != "!="))
    return tuple(terms)


def _unescaped(found: re.Match[str]) -> str:
    if found[2]:
        why = f"unescaped character in value: {ord(found[2])}"
        raise ApiError.bad_request(f"invalid field selector: {why}")
    if found[1] not in {"\\", ",", "="}:
        why = f"invalid escape sequence: {found[0]}"
        raise ApiError.bad_request(f"invalid field selector: {why}")
    return found[1]


def exact_fields(text: str) -> tuple[tuple[str, str], ...]:
    """Return the exact requirements of a field selector; empty if it is malformed.

    >>> exact_fields("spec.nodeName=n1,status.phase!=Failed")
    (('spec.nodeName', 'n1'),)
    """
    try:
        return tuple((term.field, term.value) for term in parse_fields(text) if term.wanted)
    except ApiError:
        return ()


def _split(text: str) -> list[str]:
    """Split at commas, except escaped ones."""
    return [part for part in PARTS.findall(text) if part]


def check_syntax(label_selector: str, field_selector: str) -> None:
    """Refuse a malformed selector, of whatever kind. ApiError BadRequest."""
    if label_selector:
        try:
            labels.parse(label_selector)
        except labels.SelectorError as error:
            raise ApiError.bad_request(str(error)) from error
    if field_selector:
        parse_fields(field_selector)


@remembered(4096, longest=2048)
def selection(kind: Kind, label_selector: str, field_selector: str) -> Selection:
    """Return the selection of both selectors of a request, for stored objects of a kind.

    Equal requests get the same answer, so that watches of the same objects share their work.

    ApiError: BadRequest in the server's words, for a malformed selector or an unknown field.
    """
    if not label_selector and not field_selector:
        return EVERYTHING
    checks: list[Callable[[JsonObject], bool]] = []
    name = ""
    exact: tuple[str, Getter, str] | None = None
    needles: list[str] = []
    by_version = False
    if field_selector:
        refused: dict[str, set[str]] = {}
        for term in parse_fields(field_selector):
            get = getter(kind, term.field)
            by_version = by_version or (kind.custom is not None and term.field in kind.fields)
            if not term.wanted:
                # All values that a field must not have are one look-up, however many they are.
                if term.field not in refused:
                    refused[term.field] = set()
                    checks.append(_none_of(refused[term.field], get))
                refused[term.field].add(term.value)
                continue
            checks.append(_is(term.value, get))
            needles.append(term.value)
            if term.field == "metadata.name":
                name = term.value
            elif exact is None and term.field != "metadata.namespace":
                exact = (term.field, get, term.value)
    if label_selector:
        try:
            wanted = labels.parse(label_selector)
        except labels.SelectorError as error:
            raise ApiError.bad_request(str(error)) from error
        if wanted.requirements:
            needles += [
                requirement.values[0]
                for requirement in wanted.requirements
                if requirement.operator == "In" and len(requirement.values) == 1
            ]
            checks.append(
                lambda value: wanted.accepts(value.get("metadata", {}).get("labels") or {})
            )
    if not checks:
        return EVERYTHING
    accepts = _all(checks, [needle.encode() for needle in needles if LITERAL.fullmatch(needle)])
    return Selection(
        accepts=accepts,
        fits=lambda value: all(check(value) for check in checks),
        by_version=by_version,
        name=name,
        exact=exact,
        empty=False,
    )


def _is(expected: str, get: Getter) -> Callable[[JsonObject], bool]:
    return lambda value: get(value) == expected


def _none_of(refused: set[str], get: Getter) -> Callable[[JsonObject], bool]:
    return lambda value: get(value) not in refused


def _all(
    checks: Sequence[Callable[[JsonObject], bool]], needles: Sequence[bytes]
) -> Callable[[Stored], bool]:
    """Return all checks as one. A state that is kept as JSON is parsed only if it may pass.

    `needles` occur in the JSON of every object that passes.
    """

    def accepts(stored: Stored) -> bool:
        if needles and not stored.parsed:
            encoded = stored.encoded
            for needle in needles:
                if needle not in encoded:
                    return False
        value = stored.value
        for check in checks:  # noqa: SIM110 - hot: all(…) takes twice as long
            if not check(value):
                return False
        return True

    return accepts


def getter(kind: Kind, field: str) -> Getter:
    """Return how to read a selectable field of a stored object; ApiError if it is invalid."""
    if field == "metadata.name":
        return lambda value: str(value["metadata"].get("name", ""))
    if field == "metadata.namespace" and kind.namespaced:
        return lambda value: str(value["metadata"].get("namespace", ""))
    if field == "metadata.namespace" and kind.custom is None:
        return lambda _: ""  # as of every object of the cluster
    if field not in kind.fields:
        raise ApiError.bad_request(_unknown_field(kind, field))
    if kind.hub == "events":
        return _event_getter(field)
    special = SPECIAL.get((kind.plural, field))
    return special or _path(field)


def _unknown_field(kind: Kind, field: str) -> str:
    """Return the error of an unknown field, in the words of the kind's own conversion."""
    if not kind.fields and kind.custom is None:
        # The namespace is named for kinds of the cluster, too.
        return _only(field, '"metadata.name", "metadata.namespace"')
    if kind.group == "batch":
        return f'field label "{field}" not supported for {kind.kind}'
    if kind.group == "resource.k8s.io":
        return f"field label not supported for {kind.api_version}, Kind={kind.kind}: {field}"
    return f"field label not supported: {field}"


def _only(field: str, known: str) -> str:
    return f'"{field}" is not a known field selector: only {known}'


def _path(field: str) -> Getter:
    parts = field.split(".")

    def get(value: JsonObject) -> str:
        found: Any = value
        for part in parts:
            if not isinstance(found, Mapping):
                return ""
            found = found.get(part)
        if found is None:
            return ""
        if isinstance(found, bool):
            return "true" if found else "false"
        return str(found)

    return get


def _flag(field: str) -> Getter:
    read = _path(field)
    return lambda value: read(value) or "false"


def _count(field: str) -> Getter:
    read = _path(field)
    return lambda value: read(value) or "0"


def _pod_ips(value: JsonObject) -> str:
    ips = status_of(value).get("podIPs") or ()
    return ",".join(entry.get("ip", "") for entry in ips)


SPECIAL: Final[Mapping[tuple[str, str], Getter]] = {
    ("pods", "spec.host"): _path("spec.nodeName"),
    ("pods", "spec.hostNetwork"): _flag("spec.hostNetwork"),
    ("pods", "status.podIPs"): _pod_ips,
    ("nodes", "spec.unschedulable"): _flag("spec.unschedulable"),
    ("replicationcontrollers", "status.replicas"): _count("status.replicas"),
    ("jobs", "status.successful"): _count("status.succeeded"),
}


def _event_getter(field: str) -> Getter:
    """Events are stored in their core form, whichever of the two APIs is asked."""
    if field.startswith("regarding."):
        return _path("involvedObject." + field.removeprefix("regarding."))
    if field == "source":
        component, reporting = _path("source.component"), _path("reportingComponent")
        return lambda value: component(value) or reporting(value)
    if field == "reportingController":
        return _path("reportingComponent")
    return _path(field)

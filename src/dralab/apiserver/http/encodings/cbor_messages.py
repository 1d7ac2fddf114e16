"""Bodies and answers in CBOR, by way of JSON (gate CBORServingAndStorage).

Only writing needs to know an object's type: bytes, which JSON has as base64, are bytes in CBOR.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.http.encodings.bodies import UnrecognizedBody
from dralab.apiserver.http.encodings.encoding import ObjectEncoder, PartialEncoder
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.http.negotiation import CBOR
from dralab.apiserver.protobuf.plans import MessagePlan, plan_of_object
from dralab.apiserver.storage import Stored
from dralab.apiserver.storage.watching.interfaces import EventType
from dralab.apiserver.verbs.reading import ListPage
from dralab.values import cbor
from dralab.values.cbor import EVERY, BytesAt, CborError

APPLY: Final = "application/apply-patch+cbor"
APPLY_YAML: Final = "application/apply-patch+yaml"
_BYTES: Final[dict[tuple[str, str], BytesAt]] = {}


def with_json_body(request: HttpRequest, kind: Kind) -> HttpRequest:
    """Return a request whose body is JSON where it was CBOR. ApiError: it is neither."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    unread = request.method == "GET" or (request.method == "DELETE" and not request.body)
    if unread or media not in {CBOR, APPLY}:
        return request
    try:
        body = orjson.dumps(cbor.loads(request.body))
    except CborError as error:
        if media == APPLY:
            raise ApiError.bad_request(f"error decoding YAML: {error}") from error
        why = f"unable to determine group/version/kind: {error}"
        if request.method == "DELETE":
            raise ApiError.bad_request(why) from error
        raise UnrecognizedBody(request.body, kind.kind, why) from error
    plain = "application/json" if media == CBOR else APPLY_YAML
    return replace(request, body=body, headers={**request.headers, "content-type": plain})


def as_cbor(data: bytes) -> bytes:
    """Return the JSON of an object or a list as CBOR."""
    value = orjson.loads(data)
    return cbor.dumps(value, bytes_of(value))


def bytes_of(value: Any) -> BytesAt:
    """Return which fields of an object, or of a list of them, are bytes."""
    version, name = value.get("apiVersion") or "", value.get("kind") or ""
    found = _BYTES.get((version, name))
    if found is None:
        plan = plan_of_object(version, name)
        if plan is None and name.endswith("List"):
            items = plan_of_object(version, name.removesuffix("List"))
            found = {"items": _bytes_in(items, ())} if items is not None else {}
        else:
            found = _bytes_in(plan, ()) if plan is not None else {}
        if plan is not None or found:  # types that clients define have none, and are many
            _BYTES[version, name] = found
    return found


def _bytes_in(plan: MessagePlan, within: tuple[str, ...]) -> Mapping[str, Any]:
    if plan.special or plan.name in within:
        return {}
    found: dict[str, Any] = {}
    for field in plan.fields.values():
        inner: Any = {}
        value = field.map_value or field
        if value.scalar == "bytes":
            inner = True
        elif value.plan is not None:
            inner = _bytes_in(value.plan, (*within, plan.name))
        if not inner:
            continue
        if field.inline:
            found |= inner
        else:
            found[field.name] = {EVERY: inner} if field.map_value else inner
    return found


class CborEncoder:
    """Encodes as a CBOR sequence the events that another encoder writes as lines of JSON."""

    shared = True

    def __init__(self, json: ObjectEncoder | PartialEncoder) -> None:
        self.json = json

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CborEncoder) and other.json == self.json

    def __hash__(self) -> int:
        return hash((CborEncoder, self.json))

    def object(self, stored: Stored) -> bytes:
        """Return one object, in JSON: whole answers are converted."""
        return self.json.object(stored)

    def page(self, page: ListPage) -> bytes | Sequence[bytes]:
        """Return a list, in JSON."""
        return self.json.page(page)

    def event(self, type: EventType, stored: Stored) -> bytes:
        """Return one change."""
        return _event(self.json.event(type, stored))

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark."""
        return _event(self.json.bookmark(revision, initial_end=initial_end))


def error_event(error: ApiError) -> bytes:
    """Return the event of a watch that cannot go on."""
    return cbor.event("ERROR", cbor.dumps(error.status()))


def _event(line: bytes) -> bytes:
    value = orjson.loads(line)
    shown = value["object"]
    return cbor.event(value["type"], cbor.dumps(shown, bytes_of(shown)))

"""The OpenAPI documents under `/openapi`: made when first asked for, compressed once, kept.

A document is forgotten when the kinds it describes change; its hash in the index tells clients.
"""

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError
from dralab.apiserver.http import negotiation, openapi
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.http.weighing import check

# A kept document with its tag: plain and compressed.
Kept = tuple[bytes, bytes, str]
COMPRESSION: Final = 5
KIND: Final = 2048  # bytes of JSON whose reading takes as long as the description of a kind
# The Content-Type of a real server's JSON.
INDEX_TYPE: Final = "text/plain; charset=utf-8"
PLAIN: Final = ("application/json", "application/*", "*/*")
PROTOBUF3: Final = "application/com.github.proto-openapi.spec.v3"
# What Go clients ask for (`OpenAPISchema`), and kubectl for kinds without an OpenAPI 3 document.
PROTOBUF2: Final = "application/com.github.proto-openapi.spec.v2"


class OpenApiPages:
    """Answers the paths below `/openapi`."""

    def __init__(
        self,
        kinds: Kinds,
        server_version: str,
        lock: AbstractContextManager[object] | None = None,
        elsewhere: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.kinds = kinds
        self.lock = lock or nullcontext()  # kinds change while it is held
        self.server_version = server_version
        self.elsewhere = elsewhere  # paths of other servers' documents, by place
        self._changes = -1
        self._index: Kept = (b"", b"", "")
        self._hashes: dict[str, str] = {}
        self._documents: dict[str, Kept] = {}
        self._protobufs: dict[str, Kept] = {}

    def answer(self, request: HttpRequest, parts: Sequence[str]) -> HttpResponse | None:
        """Answer a GET; None if there is no such document."""
        with self.lock:
            self._refresh()
        match list(parts):
            case ["v3"]:
                return _answer(request, self._index, content_type=INDEX_TYPE)
            case ["v3", *place] if (name := "/".join(place)) in self._hashes:
                return self._document(request, name)
            case ["v2"] if _wants_protobuf(request, PROTOBUF2):
                packed = self._as_protobuf(request, "v2", self._version2(request))
                return _answer(request, packed, content_type=f"{PROTOBUF2}.v1.0+protobuf")
            case ["v2"]:
                return _answer(request, self._version2(request))
            case _:
                return None

    def _document(self, request: HttpRequest, place: str) -> HttpResponse:
        hashed = self._hashes[place]
        asked = request.query.partition("hash=")[2].partition("&")[0]
        if asked and asked != hashed:
            # The document has changed since the client read the index.
            location = f"/openapi/v3/{place}?hash={hashed}"
            return HttpResponse(status=301, headers=(("Location", location),))
        kinds = openapi.places(self.kinds).get(place, ())
        kept = self._kept(
            request,
            f"v3/{place}#{hashed}",
            kinds,
            lambda: openapi.version3(place, kinds, self.server_version, self.kinds.release),
        )
        forever = (("Cache-Control", "public, immutable"),) if asked else ()
        if _wants_protobuf(request, PROTOBUF3):
            packed = self._as_protobuf(request, f"v3/{place}#{hashed}", kept)
            content_type = f"{PROTOBUF3}.v1.0+protobuf"
            return _answer(request, packed, content_type=content_type, headers=forever)
        return _answer(request, kept, headers=forever)

    def _as_protobuf(self, request: HttpRequest, key: str, kept: Kept) -> Kept:
        """Return a document in protobuf, made once. TakesLong for a large one."""
        found = self._protobufs.get(key)
        if found is None:
            check(request, len(kept[0]))
            from dralab.apiserver.http.openapi import protobuf_form

            of_version = protobuf_form.encode_version2 if key == "v2" else protobuf_form.encode
            found = self._protobufs[key] = _kept_as(of_version(orjson.loads(kept[0])))
        return found

    def _version2(self, request: HttpRequest) -> Kept:
        """Return the OpenAPI 2 document of everything. TakesLong."""
        made = lambda: openapi.version2(self.kinds, self.server_version)  # noqa: E731
        return self._kept(request, "v2", list(self.kinds), made)

    def _refresh(self) -> None:
        if self._changes == self.kinds.changes:
            return
        found, self._hashes = openapi.index(self.kinds, self.server_version)
        for place, path in self.elsewhere().items():
            found["paths"].setdefault(place, {"serverRelativeURL": path})
        self._index = _packed(found)
        wanted = {f"v3/{place}#{hashed}" for place, hashed in self._hashes.items()}
        self._documents = {key: kept for key, kept in self._documents.items() if key in wanted}
        self._protobufs = {key: kept for key, kept in self._protobufs.items() if key in wanted}
        self._changes = self.kinds.changes

    def _kept(
        self,
        request: HttpRequest,
        key: str,
        kinds: Sequence[Kind],
        made: Callable[[], dict[str, Any]],
    ) -> Kept:
        """Return a document, made if it was not yet. TakesLong where it describes many kinds."""
        found = self._documents.get(key)
        if found is None:
            check(request, len(kinds) * KIND)
            changes = self.kinds.changes
            found = _packed(made())
            with self.lock:
                if self.kinds.changes == changes:
                    self._documents[key] = found
        return found


def _wants_protobuf(request: HttpRequest, form: str) -> bool:
    """Whether a client accepts a form of protobuf, and no JSON."""
    found = negotiation.clauses(request.headers.get("accept", ""))
    media = [clause.media for clause in found]
    return any(item.startswith(form) for item in media) and not any(item in PLAIN for item in media)


def _packed(document: dict[str, Any]) -> Kept:
    return _kept_as(orjson.dumps(document))


def _kept_as(body: bytes) -> Kept:
    tag = hashlib.sha512(body).hexdigest().upper()
    return body, gzip.compress(body, COMPRESSION, mtime=0), f'"{tag}"'


def _answer(
    request: HttpRequest,
    kept: Kept,
    *,
    content_type: str = "application/json",
    headers: Sequence[tuple[str, str]] = (),
) -> HttpResponse:
    accept = request.headers.get("accept", "")
    clauses = negotiation.clauses(accept)
    asked_for = content_type.startswith((PROTOBUF2, PROTOBUF3))
    if accept and not asked_for and not any(clause.media in PLAIN for clause in clauses):
        raise ApiError(
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        )
    plain, compressed, tag = kept
    shown = [("Content-Type", content_type), ("ETag", tag), ("Vary", "Accept"), *headers]
    if request.headers.get("if-none-match") == tag:
        return HttpResponse(status=304, headers=shown)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return HttpResponse(headers=[*shown, ("Content-Encoding", "gzip")], body=compressed)
    return HttpResponse(headers=shown, body=plain)

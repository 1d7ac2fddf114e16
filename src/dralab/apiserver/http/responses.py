"""Responses: the form that a client asked for, warnings in headers, and JSON for people."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import shown
from dralab.apiserver.http import negotiation
from dralab.apiserver.http.encodings.encoding import as_yaml
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.http.negotiation import AnswerForm
from dralab.apiserver.http.trying import JSON, NO_CACHE
from dralab.apiserver.verbs.reading import ListPage

PROTOBUF_HEADERS: Final = (NO_CACHE, ("Content-Type", negotiation.PROTOBUF))
TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
DOCUMENTS: Final = ("/openapi", "/.well-known/", "/openid/")  # always as they are
MOST_WARNED: Final = 4096  # characters of all warnings of an answer, about
LONGEST_WARNING: Final = 256  # characters of one, where they are more
WARNINGS: Final = 20  # damaged objects that a list names one by one


def form_for(request: HttpRequest, kind: Kind, *, listing: bool, tables: bool = True) -> AnswerForm:
    """Return the form of the answer; ApiError NotAcceptable.

    Without `tables` there are none: of a review, say, or of a binding.
    """
    accept = request.headers.get("accept", "")
    form = negotiation.form_of(
        accept, protobuf=kind.custom is None, cbor=request.cbor, tables=tables
    )
    if form is None and kind.custom is not None:
        raise negotiation.unmet()
    if form is None or (kind.custom is None and "application/*" in accept):
        error = negotiation.not_acceptable(accept, listing=listing, cbor=request.cbor)
        if form is None or error.details is not None:
            raise error
    return form


def warnings_of(page: ListPage) -> Sequence[str]:
    """Return the warnings of a list: the objects that are missing from it because of damage."""
    if not page.damaged:
        return ()
    found = [f"{shown(key)} is damaged and omitted" for key in page.damaged[:WARNINGS]]
    if more := len(page.damaged) - WARNINGS:
        found += [f"{more} more are damaged and omitted"] if more > 0 else []
    return found


def not_allowed(kind: Kind | None = None, verb: str = "") -> ApiError:
    """Return the error for a verb that a path does not have; of a custom kind it is named."""
    if kind is not None and kind.custom is not None:
        why = f'{verb} is not supported on resources of kind "{kind.plural}.{kind.group}"'
        return ApiError("MethodNotAllowed", why, details={"group": kind.group, "kind": kind.plural})
    return ApiError(
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def response(
    body: bytes | Sequence[bytes],
    form: AnswerForm,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
) -> HttpResponse:
    """Return an answer in a form, with its warnings; JSON ends its line, as Go's encoder does."""
    headers: Sequence[tuple[str, str]] = JSON
    if form.encoding == "json":
        body = body + b"\n" if isinstance(body, bytes) else (*body, b"\n")
    else:
        body, headers = _converted(body if isinstance(body, bytes) else b"".join(body), form)
    if warnings:
        headers = [*headers, *warning_headers(warnings)]
    return HttpResponse(status=status, headers=headers, body=body)


def encoded(
    body: bytes | Sequence[bytes],
    form: AnswerForm,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
) -> HttpResponse:
    """Return an answer that an encoder has written: protobuf, JSON, or YAML made from it."""
    if form.encoding != "protobuf":
        return response(body, form, status=status, warnings=warnings)
    headers = (*PROTOBUF_HEADERS, *warning_headers(warnings)) if warnings else PROTOBUF_HEADERS
    return HttpResponse(status=status, headers=headers, body=body)


def _converted(body: bytes, form: AnswerForm) -> tuple[bytes, Sequence[tuple[str, str]]]:
    """Return JSON in another form, and the headers for it."""
    if form.encoding == "cbor":
        from dralab.apiserver.http.encodings.cbor_messages import as_cbor

        return as_cbor(body), (NO_CACHE, ("Content-Type", form.content_type))
    if form.encoding == "yaml":
        return as_yaml(body), (NO_CACHE, ("Content-Type", form.content_type))
    from dralab.apiserver.http.encodings.protobuf_answers import as_protobuf

    found = as_protobuf(body)
    return (body, JSON) if found is None else (found, PROTOBUF_HEADERS)


def negotiated(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """Return a refusal in the form that its client prefers, as a real server does."""
    accept = request.headers.get("accept", "")
    if not any(name in accept for name in ("protobuf", "yaml", "cbor")):
        return answer
    form = negotiation.form_of(accept, protobuf=True, cbor=request.cbor)
    if form is None or form.encoding == "json":
        return answer
    body, types = _converted(answer.content, form)
    others = [header for header in answer.headers if header not in JSON]
    return HttpResponse(status=answer.status, headers=[*types, *others], body=body)


def warning_headers(warnings: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of warnings, each text once; they are truncated if they are too long.

    Source: k8s.io/apiserver `endpoints/filters/warning.go`.
    """
    texts = [text for text in dict.fromkeys(warnings) if text]
    if sum(map(len, texts)) > MOST_WARNED:
        total, kept = 0, []
        for text in texts:
            if total >= MOST_WARNED:
                break
            kept.append(text[:LONGEST_WARNING])
            total += len(kept[-1])
        texts = kept
    for text in texts:
        yield "Warning", f"299 - {quoted(text)}"


def quoted(text: str) -> str:
    """Return a text as a quoted string of a header, in UTF-8 as Go writes it.

    Headers are texts of bytes (latin-1) up to the edge; a field may have any name.
    """
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(character if character.isprintable() else " " for character in plain)
    return f'"{shown}"'.encode(errors="replace").decode("latin-1")


def wants_pretty(request: HttpRequest) -> bool:
    """Whether to indent: by parameter, or by the User-Agent of a browser or curl.

    Source: apiserver `endpoints/handlers/negotiation` (isPrettyPrint).
    """
    if request.path.startswith(DOCUMENTS):
        return False
    query = request.query
    if "pretty" in query:
        given = parse_qs(query, keep_blank_values=True).get("pretty")
        if given:
            return given[0] not in {"0", "false", "False", "F", "f", "FALSE"}
    return request.headers.get("user-agent", "").startswith(("curl", "Wget", "Mozilla/5.0"))


def pretty(answer: HttpResponse) -> HttpResponse:
    """Return the answer with its JSON indented, and no end of line; other bodies as they are."""
    headers = {key.lower(): value for key, value in answer.headers}
    if "content-encoding" in headers:  # compressed already, as the pages of OpenAPI are
        return answer
    if not headers.get("content-type", "").startswith("application/json"):
        return answer
    body = orjson.dumps(orjson.loads(answer.content), option=orjson.OPT_INDENT_2)
    return replace(answer, body=body)

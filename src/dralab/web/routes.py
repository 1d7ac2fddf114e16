"""The routes of the page: its questions, and how answers are sent."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.http.routing import not_found, query_of, segments_of
from dralab.apiserver.http.trying import refusal
from dralab.web.page import SAFE, page, page_headers

ROOT: Final = "ui"
DATA: Final = "data"
LONGEST_BODY: Final = 64 * 1024
READS: Final = frozenset({"GET", "HEAD"})
JSON_TYPE: Final = ("Content-Type", "application/json")


class PageAnswers(Protocol):
    """What answers the questions of the page: `Desk` for clusters, `RunDesk` for simulations."""

    def about(self) -> bytes:
        """Return what is shown."""
        ...


def is_page(request: HttpRequest) -> bool:
    """Return whether a request is for the page itself, which has no secrets."""
    return segments_of(request.path) == [ROOT]


def is_below(request: HttpRequest) -> bool:
    """Return whether a request is for the page or its data."""
    return request.path == f"/{ROOT}" or request.path.startswith(f"/{ROOT}/")


def is_changes(request: HttpRequest) -> bool:
    """Return whether a request follows the source; its answer is a stream where it may."""
    return request.method == "GET" and segments_of(request.path) == [ROOT, DATA, "changes"]


def answer_page(request: HttpRequest) -> HttpResponse:
    """Return the page."""
    if request.method not in READS:
        return refusal(ApiError("MethodNotAllowed", "the page supports only GET"))
    return HttpResponse(headers=page_headers(), body=page() if request.method == "GET" else b"")


def answer_data(request: HttpRequest, desk: PageAnswers) -> HttpResponse:
    """Return the answer to a question of the page; every refusal is a Status. It may take long."""
    try:
        body = _answer(request, desk)
    except ApiError as error:
        answer = refusal(error)
        return HttpResponse(
            status=answer.status, headers=(*answer.headers, *SAFE), body=answer.body
        )
    return HttpResponse(headers=(JSON_TYPE, *SAFE), body=body)


def _answer(request: HttpRequest, desk: PageAnswers) -> bytes:
    parts = segments_of(request.path)
    if len(parts) != 3 or parts[:2] != [ROOT, DATA]:
        raise not_found()
    questions: Mapping[str, tuple[str, str, Sequence[str]]] = QUESTIONS
    if parts[2] not in questions:
        raise not_found()
    method, name, wanted = questions[parts[2]]
    ask: Callable[..., bytes] | None = getattr(desk, name, None)
    if ask is None:
        raise not_found()
    if request.method != method:
        raise ApiError("MethodNotAllowed", f"{request.path} supports only {method}")
    if method == "POST":
        return ask(_body(request))
    query = query_of(request.query)
    return ask(*(query.get(each, [""])[0] for each in wanted))


# Path: the method, who answers it, and the parameters in its order.
QUESTIONS: Final[Mapping[str, tuple[str, str, Sequence[str]]]] = {
    "about": ("GET", "about", ()),
    "changes": ("GET", "changes", ()),
    "fleet": ("GET", "fleet", ("have",)),
    "waiting": ("GET", "waiting", ("have",)),
    "causes": ("GET", "causes", ()),
    "story": ("GET", "story", ("kind", "namespace", "name")),
    "events": ("GET", "events", ("kind", "namespace", "name")),
    "usable": ("GET", "usable", ("kind", "namespace", "name")),
    "explain": ("GET", "explanation", ("kind", "namespace", "name")),
    "what-if": ("POST", "what_if", ()),
    "moves": ("POST", "moves", ()),
    "run": ("GET", "run", ()),
}


def _body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object of a request. ApiError: 400, 413, 415."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ApiError("UnsupportedMediaType", "the body must be application/json", details={})
    if len(request.body) > LONGEST_BODY:
        raise ApiError("RequestEntityTooLarge", f"the body is longer than {LONGEST_BODY} bytes")
    try:
        found = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise ApiError.bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ApiError.bad_request("the body is not a JSON object")
    return found

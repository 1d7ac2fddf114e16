"""The server of `dralab ui`: the page alone, on the loopback, for the one who started it.

Other users of the machine can connect too, so questions need a token. The address that is printed
carries a code after `#`, which browsers send nowhere; the page exchanges it for the token, once.
So neither the history of the browser nor a list of processes opens the page again.
"""

import hmac
import secrets
from collections.abc import Callable
from http.client import OK
from typing import Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.chain import bearer, unauthorized
from dralab.apiserver.http.browser_guard import Guard
from dralab.apiserver.http.connections.asgi_base import AsgiBase, AsgiLimits, Outcome
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.http.routing import not_found, segments_of
from dralab.apiserver.http.trying import refusal
from dralab.web.live_streams import LiveAnswers, LiveStreams
from dralab.web.page import SAFE
from dralab.web.routes import (
    JSON_TYPE,
    LONGEST_BODY,
    ROOT,
    PageAnswers,
    answer_data,
    answer_page,
    is_below,
    is_changes,
    is_page,
)
from dralab.web.workroom import Workroom

SESSION: Final = [ROOT, "session"]


class PageApp(AsgiBase):
    """The ASGI application of `dralab ui`; `new_code` gets each code that opens the page."""

    def __init__(self, desk: PageAnswers, new_code: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(AsgiLimits(body=LONGEST_BODY))
        self._desk = desk
        self._tell = new_code
        self._guard = Guard()
        self._room = Workroom()
        self._streams = LiveStreams(self._room.later)
        self._token = secrets.token_urlsafe(32)
        self.code = secrets.token_urlsafe(32)

    def admit(self, request: HttpRequest) -> None:
        """Refuse requests of other pages, and questions without the token. ApiError."""
        self._guard.check(request)
        if is_page(request) or segments_of(request.path) == SESSION:
            return
        if not is_below(request):
            raise not_found()
        shown = bearer(request.headers.get("authorization", ""))
        if not hmac.compare_digest(shown.encode(), self._token.encode()):
            raise unauthorized()

    async def submit(self, request: HttpRequest) -> Outcome:
        """Answer a request."""
        if is_page(request):
            return answer_page(request)
        if segments_of(request.path) == SESSION:
            return self._session(request)
        answer = await self._room.answer(lambda: answer_data(request, self._desk))
        if is_changes(request) and answer.status == OK and isinstance(self._desk, LiveAnswers):
            return self._streams.open(self._desk)
        return answer

    def close(self) -> None:
        """End the streams, and the thread of the page."""
        self._streams.close()
        self._room.close()
        super().close()

    def end_streams(self) -> None:
        """End the streams of all pages, which open new ones. Any thread may call it."""
        self.soon(self._streams.close)

    def _session(self, request: HttpRequest) -> HttpResponse:
        """Exchange the code for the token; it is valid once, and another one is made."""
        if request.method != "POST":
            return refusal(ApiError("MethodNotAllowed", "a session begins with POST"))
        if request.headers.get("content-type") != "application/json":
            text = "the body must be application/json"
            return refusal(ApiError("UnsupportedMediaType", text, details={}))
        try:
            given = orjson.loads(request.body)["code"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return refusal(ApiError.bad_request('the body must be {"code": CODE}'))
        if not hmac.compare_digest(str(given).encode(), self.code.encode()):
            text = "this address was used before: take the newest one that dralab ui printed"
            return refusal(ApiError("Unauthorized", text))
        self.code = secrets.token_urlsafe(32)
        self._tell(self.code)
        body = orjson.dumps({"token": self._token})
        return HttpResponse(headers=(JSON_TYPE, *SAFE), body=body)

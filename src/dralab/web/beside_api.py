"""The page at `/ui` of an API server, for users whom the server knows and with their rights.

The page itself is for everybody: it has no secrets, and asks for a token where one is needed. Its
questions are requests as all others: authenticated, checked by the browser guard, in the audit log;
they are answered from what their user may list.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from http.client import OK
from typing import TYPE_CHECKING, Final

from dralab.apiserver.access.authentication.chain import unauthorized
from dralab.apiserver.access.users import User
from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.connections.asgi_base import AsgiLimits, Outcome
from dralab.apiserver.http.connections.promises import Promise
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse
from dralab.apiserver.server import ApiServer
from dralab.runtime.local import LocalClient
from dralab.web.routes import answer_data, answer_page, is_below, is_changes, is_page
from dralab.web.workroom import Workroom

if TYPE_CHECKING:
    from dralab.web.desk import Desk
    from dralab.web.live_streams import LiveStreams

MOST_DESKS: Final = 4


class AppWithPage(AsgiApp):
    """The ASGI application of an API server, and the page beside it."""

    def __init__(self, server: ApiServer, limits: AsgiLimits | None = None) -> None:
        super().__init__(server, limits)
        self._room = Workroom()
        self._streams: LiveStreams | None = None
        self._desks: OrderedDict[tuple[ApiServer, str, tuple[str, ...]], Desk] = OrderedDict()

    def admit(self, request: HttpRequest) -> None:
        """Check a request before its body is read. ApiError: it is refused."""
        if is_page(request):
            self._server.application.check_open(request)
        else:
            super().admit(request)

    def submit(self, request: HttpRequest) -> "Awaitable[Outcome]":  # type: ignore[override]  # a coroutine is awaited once, as here
        """Answer a request: of the page, or of the API."""
        if is_below(request):
            return self._of_page(request)
        return super().submit(request)

    def submit_to(self, request: HttpRequest, answered: Promise[Outcome]) -> None:
        """Do the same; the answer is given to a promise."""
        if not is_below(request):
            super().submit_to(request, answered)
            return

        def pass_on(done: "asyncio.Future[Outcome]") -> None:
            if done.cancelled():
                answered.cancel()
            elif (error := done.exception()) is not None:
                answered.set_exception(error)
            else:
                answered.set_result(done.result())

        asyncio.ensure_future(self._of_page(request)).add_done_callback(pass_on)

    def close(self) -> None:
        """End all watches and streams, and the thread of the page."""
        if self._streams is not None:
            self._streams.close()
        self._room.close()
        super().close()

    async def _of_page(self, request: HttpRequest) -> Outcome:
        if is_page(request):
            return answer_page(request)
        server = self._server

        def ask() -> HttpResponse:
            answer = server.answer_with(request, self._answer_question)
            if not isinstance(answer, HttpResponse):
                raise TypeError(f"a question of the page has {type(answer).__name__} as its answer")
            return answer

        answer = await self._room.answer(ask)
        if is_changes(request) and answer.status == OK and request.user is not None:
            return self._live().open(self._desk(request.user))
        return answer

    def _answer_question(self, request: HttpRequest) -> Answer:
        if request.user is None:
            raise unauthorized()
        return answer_data(request, self._desk(request.user))

    def _live(self) -> "LiveStreams":
        if self._streams is None:
            # Only now, as for the desk.
            from dralab.web.live_streams import LiveStreams

            self._streams = LiveStreams(self._room.later)
        return self._streams

    def _desk(self, user: User) -> "Desk":
        server = self._server
        key = (server, user.name, tuple(user.groups))
        desk = self._desks.pop(key, None)
        if desk is None:
            # Only now: a server starts without what the page alone needs.
            from dralab.web.desk import Desk
            from dralab.web.sources import ListedSource

            context = server.resources.context
            client = LocalClient(server.resources, server.hub, user=user)
            source = ListedSource(client, context.store)
            desk = Desk(source, context.clock, "this server", live=True)
            if len(self._desks) >= MOST_DESKS:
                self._desks.popitem(last=False)
        self._desks[key] = desk
        return desk

    @property
    def _server(self) -> ApiServer:
        if not isinstance(self.served, ApiServer):
            raise TypeError("the page is served beside an ApiServer alone")
        return self.served

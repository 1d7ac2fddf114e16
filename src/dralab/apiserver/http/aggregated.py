"""Passes requests on to aggregated API servers, with the user in headers.

An answer is passed on once it is there as a whole, with limits on time and size; watches are
refused. Source: k8s.io/kube-aggregator `pkg/apiserver/handler_proxy.go`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from dralab.api.status import ApiError
from dralab.apiserver.aggregation.services import RemoteVersion, RemoteVersions
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse, Proxied
from dralab.apiserver.http.routing import is_watch, query_of
from dralab.apiserver.outgoing.targets import Unreachable
from dralab.apiserver.users import User

TIMEOUT: Final = 60.0  # seconds for a whole answer
TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
PASSED_ON: Final = ("accept", "content-type", "user-agent", "if-none-match")
ANSWERED: Final = ("content-type", "etag", "warning", "retry-after", "vary", "cache-control")


class AggregatedApis:
    """Answers requests for the groups of other servers; users were authorized before."""

    def __init__(self, remote: RemoteVersions) -> None:
        self.remote = remote

    def answer(self, request: HttpRequest, parts: Sequence[str], user: User) -> Answer | None:
        """Return the answer of another server; None if none answers for that group."""
        if len(parts) < 3 or parts[0] != "apis" or not self.remote.all:
            return None
        found = self.remote.find(parts[1], parts[2])
        if found is None:
            return None
        if not found.available:
            return HttpResponse(status=503, headers=TEXT, body=b"service unavailable\n")
        if is_watch(query_of(request.query)) or "upgrade" in request.headers:
            raise ApiError(
                "MethodNotAllowed",
                f"watches of {found.group}/{found.version} are not passed on to its API server",
                code=HTTPStatus.NOT_IMPLEMENTED,
                details={},
            )
        return Proxied(ask=lambda: asyncio.to_thread(self._asked, request, found, user))

    def _asked(self, request: HttpRequest, found: RemoteVersion, user: User) -> HttpResponse:
        given = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        try:
            target = self.remote.target(found, quote(request.path, safe="/:@!$&'()*+,;=-._~%"))
            answer = self.remote.context.outgoing.client.call(
                target,
                request.body,
                method=request.method,
                query=request.query,
                timeout=TIMEOUT,
                headers=[*given.items(), *_identity(user)],
            )
        except Unreachable as error:
            text = f"error trying to reach service: {error}\n"
            return HttpResponse(status=503, headers=TEXT, body=text.encode())
        kept = [(name, answer.headers[name]) for name in ANSWERED if name in answer.headers]
        return HttpResponse(status=answer.status, headers=kept, body=answer.body)


def _identity(user: User) -> Iterator[tuple[str, str]]:
    """Yield the headers that tell an API server who asks, behind the proxy's certificate."""
    yield "X-Remote-User", _plain(user.name)
    if user.uid:
        yield "X-Remote-Uid", _plain(user.uid)
    for group in user.groups:
        yield "X-Remote-Group", _plain(group)
    for key, values in user.extra.items():
        for value in values:
            yield f"X-Remote-Extra-{quote(key, safe='')}", _plain(value)


def _plain(text: str) -> str:
    """Return a text that cannot end a header."""
    return text.replace("\r", " ").replace("\n", " ")

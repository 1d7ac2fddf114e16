"""The messages of the application: requests, responses, and streams of changes.

The application is a function on these; the transport handles sockets, TLS and fan-out.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Protocol

from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.users import User
from dralab.apiserver.http.negotiation import Encoding
from dralab.apiserver.storage.watching.interfaces import Spelling, Watching
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.access.audit.events import Record
    from dralab.apiserver.http.routing import Route

LARGEST_MESSAGE: Final = 4 * 1024 * 1024  # bytes of one WebSocket message


AGENT: Final = 64  # characters of a User-Agent that tell programs apart

HEAVY: Final = 128 * 1024
"""Bytes of JSON whose reading, checking and writing may take a tenth of a second."""

YAML_READ: Final = 10  # times as long as JSON
YAML_WRITTEN: Final = 20


LARGE: Final = 1024 * 1024
"""Bytes of JSON that may take a second."""

# Where a request is answered: in the loop, where others wait for it, or in threads of these names.
LOOP: Final = "loop"
HEAVY_LANE: Final = "heavy-requests"
LARGE_LANE: Final = "large-requests"
WRITES_LANE: Final = "writes"
WAITING_LANE: Final = "waiting"


def lane_for(weight: int) -> str:
    """Return the lane for a request that processes about so many bytes of JSON.

    There are two, so that requests of seconds do not delay those of tenths of a second.
    """
    return LARGE_LANE if weight > LARGE else HEAVY_LANE


class TakesLong(Exception):  # noqa: N818 - a condition, which no client sees
    """A request that is to be answered in another lane."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane)
        self.lane = lane


# Not frozen, as values are elsewhere: they are made for every request, and that takes three times
# as long. They are immutable.
@dataclass(slots=True, kw_only=True)
class HttpRequest:
    """One request: `query` is the raw text after `?`, header names are in lower case.

    `peer` is the address of the client, for logs only. `user` is who asks,
    if the edge determined that before it read the body, and `impersonator` who acts as that user,
    by the right that `constraint` names;
    `repeated` are all values of headers that came more than once; `certificate` (DER) is the
    client's, which TLS has verified. `record` is the audit log's; `wanted` is what an
    authorizer was asked about it. `lane` says
    where it is answered: in `LOOP` a slow request raises TakesLong, before it begins;
    empty: in a thread for which no other request waits. `audit_id` names it in
    the answer and in the audit log; `route` is where it goes if that is a resource. `cbor` says
    that it may be answered in CBOR.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""
    user: User | None = None
    impersonator: User | None = None
    constraint: str = ""
    repeated: Mapping[str, Sequence[str]] | None = None
    certificate: bytes = b""
    lane: str = ""
    record: "Record | None" = None
    audit_id: str = ""
    route: "Route | None" = None
    wanted: Attributes | None = None
    cbor: bool = False

    @property
    def brief(self) -> bool:
        """Whether other requests wait for it."""
        return self.lane in {LOOP, WRITES_LANE}

    @property
    def weight(self) -> int:
        """About how many bytes of JSON would take as long to read as the body."""
        size = len(self.body)
        if self.body[:1] != b"{" and "yaml" in self.headers.get("content-type", ""):
            return size * YAML_READ
        return size


def program_of(request: HttpRequest) -> str:
    """Return what distinguishes the programs of one user: their User-Agent, for example."""
    return request.headers.get("user-agent", "")[:AGENT]


@dataclass(slots=True, kw_only=True)
class HttpResponse:
    """One answer; the transport adds Content-Length and Date.

    `body` may be given in parts, which are sent one after the other.
    """

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | Sequence[bytes] = b""

    @property
    def content(self) -> bytes:
        """The whole body."""
        return self.body if isinstance(self.body, bytes) else b"".join(self.body)


@dataclass(slots=True, kw_only=True)
class WatchError(HttpResponse):
    """A watch that cannot begin at its revision: its one event, an error, is the body."""

    encoding: Encoding = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStream:
    """An answer that continues: the changes that `watching` describes, encoded by `encoder`.

    The transport sends `watching.initial` as ADDED events, a bookmark with `initial_end` if
    `watching.initial_end`, then every later change that `watching.seen` lets through, and ends
    after `watching.timeout` seconds (its own choice where that is None).
    """

    watching: Watching
    encoder: Spelling[bytes]
    encoding: Encoding = "json"
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()


class Source(Protocol):
    """A stream of bytes; `byte_feeds.Feed` is one for producers in any thread."""

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def cut(self) -> str | None:
        """Why the source was cut off; None if it was not."""
        ...

    def take_items(self) -> Sequence[bytes]:
        """Return what has come; nothing where all has been taken."""
        ...

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready`, in any thread, each time something may have come; at once where it has."""
        ...

    def close(self) -> None:
        """Stop: the client is gone, or has had enough."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteStream:
    """An answer whose body is streamed, such as a log that is followed."""

    source: Source
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A WebSocket: exec, attach, port-forward, a watch. Each item of `source` is one message.

    `receive` gets each message of the client, in the server's thread: hand it over and return,
    or return what to wait for before the next message.
    `protocol` is the one chosen of those that the client offers in Sec-WebSocket-Protocol.
    Messages are binary, or `text`; `code_if_cut` closes it where the source ends too early.
    It is served within `lasting`.
    """

    source: Source
    receive: Callable[[bytes], Awaitable[None] | None]
    protocol: str
    text: bool = False
    code_if_cut: int = 1011
    lasting: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxied:
    """An answer that is fetched over the network, such as the logs of another machine.

    `ask` is awaited on the server's loop, once the batch of the store is over; it may raise
    ApiError.
    """

    ask: Callable[[], Awaitable[HttpResponse | ByteStream | Upgrade]]


Answer = HttpResponse | WatchStream | ByteStream | Upgrade | Proxied


def with_headers(answer: Answer, headers: Sequence[tuple[str, str]]) -> Answer:
    """Return an answer with more headers; proxied answers keep their own."""
    if type(answer) is HttpResponse:  # nearly all, and this takes a third of the time
        return HttpResponse(
            status=answer.status, headers=(*answer.headers, *headers), body=answer.body
        )
    if isinstance(answer, (HttpResponse, WatchStream, ByteStream)):
        return replace(answer, headers=(*answer.headers, *headers))
    return answer

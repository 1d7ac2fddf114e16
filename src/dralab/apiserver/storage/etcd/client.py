"""etcd's API over gRPC: calls, retried at another member if one does not answer, and a watch.

Written here because the store needs what the published clients lack: several endpoints, comparisons
of ranges, asked-for progress, and to know whether a failed call may have happened.
"""

import contextlib
import math
import selectors
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from dralab.apiserver.signals import Signal
from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.address import AddressError, EtcdAddress
from dralab.apiserver.storage.etcd.http2 import (
    DEADLINE_EXCEEDED,
    UNAVAILABLE,
    UNKNOWN,
    Connection,
    Stream,
)
from dralab.apiserver.storage.store import Loop
from dralab.kernel.clock import SECOND, stopwatch

ATTEMPT: Final = 2.0  # seconds for one member to answer
PATIENCE: Final = 8.0  # seconds in all, with pauses; a new leader is elected within two
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
# Errors after which another member, or the same one later, may succeed. Whether a write happened
# is unknown after each of them: CANCELLED, …, ABORTED, INTERNAL, ….
PASSING: Final = frozenset({1, UNKNOWN, DEADLINE_EXCEEDED, 10, 13, UNAVAILABLE})
OK: Final = 0
LOOKED_AFTER: Final = 0.25  # seconds between looks at what takes too long
POLLED: Final = 0.005  # seconds after which a waiting thread reads itself: the loop may be held up
LONGEST_POLLED: Final = 0.05  # seconds; each time it waits twice as long
CLOSED: Final = "the store is closed"

METHODS: Final[Mapping[str, tuple[str, type[Message]]]] = {
    "range": ("/etcdserverpb.KV/Range", pb.RangeResponse),
    "txn": ("/etcdserverpb.KV/Txn", pb.TxnResponse),
    "compact": ("/etcdserverpb.KV/Compact", pb.CompactionResponse),
    "lease": ("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse),
    "status": ("/etcdserverpb.Maintenance/Status", pb.StatusResponse),
}
WATCH: Final = "/etcdserverpb.Watch/Watch"


class EtcdRefused(StorageUnavailable):
    """etcd answered a call with an error, and did not carry it out."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(f"etcd refused the request: {details}")
        self.code = code
        self.details = details


class Called(NamedTuple):
    """An answer; `repeated` where an earlier try of the same call may have happened as well."""

    answer: Any
    repeated: bool


Done = Callable[[Called | StorageUnavailable], None]


class EtcdClient:
    """The members of an etcd; any thread may use it.

    A thread of its own reads the answers, until the loop of a server does: then requests need no
    other thread.
    """

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        try:
            context = address.context()
        except AddressError as error:
            raise StorageUnavailable(str(error)) from error
        self.members = [_Member(self, endpoint, context) for endpoint in address.endpoints]
        self.current = 0
        self.closed = threading.Event()
        self._connections: list[Connection] = []  # with open sockets
        self._loop: Loop | None = None
        self._loops_thread = 0
        self._pumped: Callable[[], None] = lambda: None
        self.heard = threading.Event()  # a watch has something to say, or is over
        self.watching: EtcdWatch | None = None
        self._thread = threading.Thread(target=self._run, name="dralab-etcd-calls", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all calls."""
        self.closed.set()
        for member in self.members:
            member.close()
        self._thread.join()
        self.heard.set()
        if self._loop is None or not self._loop.is_running():
            for connection in tuple(self._connections):
                self._drop(connection)

    def read_in(self, loop: Loop | None, pumped: Callable[[], None]) -> None:
        """Have a loop read from now on, or none; to be called in its thread.

        After it has read, it calls `pumped` instead of waking who waits for watches. Of several
        loops, the first one reads until it is over.
        """
        here = threading.get_ident()
        if self._loop is not None and self._loop.is_running() and self._loops_thread != here:
            return
        before, self._loop, self._pumped = self._loop, loop, pumped
        self._loops_thread = 0 if loop is None else here
        for connection in tuple(self._connections):
            if before is not None:
                before.remove_reader(connection.socket)
            if loop is not None:
                self._read(connection)

    def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Read keys, linearizably where no revision is given. StorageUnavailable."""
        return self._call("range", request).answer

    def transact(self, request: pb.TxnRequest) -> Called:
        """Compare and write. StorageUnavailable; EtcdRefused: it has not happened."""
        return self._call("txn", request)

    def compact(self, revision: int) -> None:
        """Compact up to a revision; no error if that was done already."""
        with contextlib.suppress(EtcdRefused):
            self._call("compact", pb.CompactionRequest(revision=revision))

    def lease(self, seconds: int) -> int:
        """Return a new lease: keys with it go when its timeout has expired. StorageUnavailable."""
        return int(self._call("lease", pb.LeaseGrantRequest(TTL=seconds)).answer.ID)

    def version(self) -> str:
        """Return the version of the member that answers. StorageUnavailable."""
        return str(self._call("status", pb.StatusRequest()).answer.version)

    def watch(self, key: bytes, end: bytes, revision: int) -> "EtcdWatch":
        """Return the changes of a range of keys from a revision on, from one member.

        StorageUnavailable: it cannot be reached.
        """
        number = self.current
        wanted = pb.WatchCreateRequest(
            key=key, range_end=end, start_revision=revision, progress_notify=True, fragment=True
        )
        try:
            return EtcdWatch(self, self.members[number].connected(), wanted)
        except OSError as error:
            self.leave(number)
            raise StorageUnavailable(f"{self.address.endpoints[number]}: {error}") from error

    def leave(self, number: int) -> None:
        """Switch to another member."""
        if self.current == number:
            self.current = (number + 1) % len(self.members)

    def call(self, name: str, request: Message, done: Done) -> None:
        """Begin a call; `done` gets its result, in any thread."""
        _EtcdCall(self, name, request, done).attempt()

    def wait(self, signal: Signal, timeout: float = math.inf) -> bool:
        """Wait until a signal is given by what a call becomes, or some seconds.

        A thread reads answers itself now and then: the loop may wait for a lock that it holds. The
        loop's own thread, which holds it then, reads all of them.
        """
        if signal.task is not None:
            return signal.wait(None if timeout == math.inf else timeout)
        until, pause = stopwatch() + timeout * SECOND, POLLED
        is_loops = threading.get_ident() == self._loops_thread
        while not (signal.given if is_loops else signal.wait(pause)) and stopwatch() < until:
            if is_loops:
                self._await_bytes(min(pause, timeout))
            self.pump()
            if is_loops:
                self._pumped()
            pause = min(2 * pause, LONGEST_POLLED)
        return signal.given

    def pump(self) -> None:
        """Take in what members have sent."""
        for connection in tuple(self._connections):
            connection.pump()
        if self.watching is not None and self.watching.has_news:
            self.heard.set()

    def added(self, connection: Connection) -> None:
        """Note that there is a connection to read from."""
        self._connections.append(connection)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._read, connection)

    def _call(self, name: str, request: Message) -> Called:
        answered, outcomes = Signal(), list[Called | StorageUnavailable]()

        def done(outcome: Called | StorageUnavailable) -> None:
            outcomes.append(outcome)
            answered.give()

        self.call(name, request, done)
        self.wait(answered)
        if isinstance(outcomes[0], StorageUnavailable):
            raise outcomes[0]
        return outcomes[0]

    def _read(self, connection: Connection) -> None:
        if self._loop is not None and connection in self._connections:
            self._loop.add_reader(connection.socket, self._readable, connection)

    def _readable(self, connection: Connection) -> None:
        connection.pump()
        self._pumped()
        if connection.lost and self._loop is not None:
            self._loop.remove_reader(connection.socket)
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        """Close a connection that is lost. Only who reads from it does, as others might wait."""
        self._connections.remove(connection)
        connection.socket.close()

    def _await_bytes(self, seconds: float) -> None:
        """Wait until there is something to read, or some seconds."""
        with selectors.DefaultSelector() as selector:
            for connection in tuple(self._connections):
                with contextlib.suppress(ValueError):  # it is closed by now
                    selector.register(connection.socket, selectors.EVENT_READ)
            selector.select(seconds)

    def _run(self) -> None:
        """Read answers, unless a loop does, and look for what takes too long."""
        looked = 0
        while not self.closed.is_set():
            connections = tuple(self._connections)
            if self._loop is not None or not connections:
                self.closed.wait(LOOKED_AFTER if connections else POLLED)
            else:
                self._await_bytes(LOOKED_AFTER)
                self.pump()
                for each in connections:
                    if each.lost and self._loop is None:
                        self._drop(each)
            now = stopwatch()
            if now - looked > LOOKED_AFTER / 2 * SECOND:
                looked = now
                for each in connections:
                    each.look()


class _EtcdCall:
    """One call, tried at one member after the other."""

    def __init__(self, client: EtcdClient, name: str, request: Message, done: Done) -> None:
        self._client, self._done = client, done
        self._path, self._form = METHODS[name]
        self._message = request.SerializeToString()
        self._turn, self._spent = 0, 0.0
        self._number = 0  # of the member that was asked last

    def attempt(self) -> None:
        """Ask the member that is asked now."""
        client = self._client
        self._number = client.current
        stream = Stream(self._end, until=stopwatch() + int(ATTEMPT * SECOND))
        connection = client.members[self._number].connection
        if client.closed.is_set():
            self._done(StorageUnavailable(CLOSED))
        elif connection is None or connection.lost:
            # A thread may wait for the handshake.
            threading.Thread(target=self._connect, args=(stream,), daemon=True).start()
        else:
            connection.call(self._path, self._message, stream)

    def _connect(self, stream: Stream) -> None:
        try:
            connection = self._client.members[self._number].connected()
        except OSError as error:
            stream.code, stream.details = UNAVAILABLE, str(error)
            self._end(stream)
        else:
            connection.call(self._path, self._message, stream)

    def _end(self, stream: Stream) -> None:
        client, code, details = self._client, stream.code, stream.details
        if code == OK:
            try:
                answer = self._form.FromString(stream.messages[0])
            except (IndexError, DecodeError):
                code, details = UNKNOWN, "the answer is not one of etcd's"
            else:
                self._done(Called(answer, self._turn > 0))
                return
        if client.closed.is_set():
            self._done(StorageUnavailable(CLOSED))
            return
        if code not in PASSING:
            self._done(EtcdRefused(code, details))
            return
        client.leave(self._number)
        pause = PAUSES[min(self._turn // len(client.members), len(PAUSES) - 1)]
        self._spent += pause + (ATTEMPT if code == DEADLINE_EXCEEDED else 0.0)
        self._turn += 1
        if self._spent > PATIENCE:
            why = f"{client.address.endpoints[self._number]}: {details}"
            self._done(StorageUnavailable(f"{client.address} does not answer ({why})"))
            return
        again = threading.Timer(pause, self.attempt)
        again.daemon = True
        again.start()


class _Member:
    """One member, and the connection to it."""

    def __init__(self, client: EtcdClient, endpoint: str, context: ssl.SSLContext | None) -> None:
        self.connection: Connection | None = None
        self._client, self._endpoint, self._context = client, endpoint, context
        self._lock = threading.Lock()

    def connected(self) -> Connection:
        """Return a connection; this may take seconds. OSError."""
        with self._lock:
            if self.connection is None or self.connection.lost:
                if self._client.closed.is_set():
                    raise OSError(CLOSED)
                self.connection = Connection(self._endpoint, self._context)
                self._client.added(self.connection)
            return self.connection

    def close(self) -> None:
        """End its calls."""
        with self._lock:
            if self.connection is not None:
                self.connection.close(CLOSED)


class EtcdWatch:
    """A stream of changes from one member; any thread may end it, or ask."""

    def __init__(
        self, client: EtcdClient, connection: Connection, wanted: pb.WatchCreateRequest
    ) -> None:
        self._client, self._connection = client, connection
        self._stream = Stream(lambda _: client.heard.set())
        client.watching = self
        asked = pb.WatchRequest(create_request=wanted)
        connection.call(WATCH, asked.SerializeToString(), self._stream, more=True)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._stream.code >= 0

    @property
    def has_news(self) -> bool:
        """Whether something has come and was not yet taken."""
        return bool(self._stream.messages)

    def wait(self) -> None:
        """Wait until something may have come, or the stream is over."""
        self._client.heard.wait()
        self._client.heard.clear()

    def responses(self) -> Iterator[pb.WatchResponse]:
        """Yield what has come and was not yet taken, without waiting."""
        messages = self._stream.messages
        while messages:
            yield pb.WatchResponse.FromString(messages.popleft())

    def ask_progress(self) -> None:
        """Ask the member up to which revision all changes have been sent."""
        asked = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
        self._connection.send(self._stream, asked.SerializeToString())

    def close(self) -> None:
        """End the stream; what has come and was not yet taken is dropped."""
        self._connection.cancel(self._stream, OK, "")
        self._stream.messages.clear()

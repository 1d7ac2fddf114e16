"""etcd's API over gRPC: calls, retried at another member if one does not answer, and a watch.

Written over grpcio because the store needs what the published clients lack: several endpoints,
comparisons of ranges, asked-for progress, and to know whether a failed call may have happened.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.address import AddressError, EtcdAddress

# grpcio, which reads this when it is imported, would log each failed handshake; its errors say why.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

Answered = TypeVar("Answered", bound=Message)

ATTEMPT: Final = 2.0  # seconds for one member to answer
PATIENCE: Final = 8.0  # seconds in all, with pauses; a new leader is elected within two
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
# Errors after which another member, or the same one later, may succeed. Whether a write happened
# is unknown after each of them.
PASSING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
    }
)
# A member that has lost its leader says so at once instead of waiting for one.
HAS_LEADER: Final = (("hasleader", "true"),)
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd closes connections that ask more often than every 5 seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
)


class EtcdRefused(StorageUnavailable):
    """etcd answered a call with an error, and did not carry it out."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"etcd refused the request: {details}")
        self.code = code
        self.details = details


class Called(NamedTuple):
    """An answer; `repeated` where an earlier try of the same call may have happened as well."""

    answer: Any
    repeated: bool


class EtcdClient:
    """The members of an etcd; any thread may use it."""

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        self._members = [_Member(self._channel(endpoint)) for endpoint in address.endpoints]
        self._current = 0
        self._closed = threading.Event()

    def close(self) -> None:
        """End all calls."""
        self._closed.set()
        for member in self._members:
            member.channel.close()

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
        """Return the changes of a range of keys from a revision on, from one member."""
        number = self._current
        wanted = pb.WatchCreateRequest(
            key=key, range_end=end, start_revision=revision, progress_notify=True, fragment=True
        )
        return EtcdWatch(self, number, self._members[number], wanted)

    def leave(self, number: int) -> None:
        """Switch to another member."""
        if self._current == number:
            self._current = (number + 1) % len(self._members)

    def _call(self, name: str, request: Message) -> Called:
        spent, repeated, why = 0.0, False, ""
        for turn in range(1000):
            if self._closed.is_set():
                raise StorageUnavailable("the store is closed")
            number = self._current
            method = self._members[number].methods[name]
            try:
                return Called(method(request, timeout=ATTEMPT, metadata=HAS_LEADER), repeated)
            except grpc.RpcError as error:
                code, details = error.code(), error.details()
                if code not in PASSING:
                    raise EtcdRefused(code, details) from error
                why = f"{self.address.endpoints[number]}: {details}"
                spent += ATTEMPT if code is grpc.StatusCode.DEADLINE_EXCEEDED else 0.0
            except ValueError as error:  # grpcio: the channel was closed
                raise StorageUnavailable("the store is closed") from error
            repeated = True
            self.leave(number)
            pause = PAUSES[min(turn // len(self._members), len(PAUSES) - 1)]
            spent += pause
            if spent > PATIENCE:
                break
            self._closed.wait(pause)
        raise StorageUnavailable(f"{self.address} does not answer ({why})")

    def _channel(self, endpoint: str) -> grpc.Channel:
        address = self.address
        if not address.secure:
            return grpc.insecure_channel(endpoint, options=OPTIONS)
        try:
            address.check_certificates()
            credentials = grpc.ssl_channel_credentials(
                address.file("cafile"), address.file("keyfile"), address.file("certfile")
            )
        except AddressError as error:
            raise StorageUnavailable(str(error)) from error
        return grpc.secure_channel(endpoint, credentials, options=OPTIONS)


class _Member:
    """One member, and its methods."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.methods = {
            name: channel.unary_unary(
                f"/etcdserverpb.{path}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            for name, path, request, response in (
                ("range", "KV/Range", pb.RangeRequest, pb.RangeResponse),
                ("txn", "KV/Txn", pb.TxnRequest, pb.TxnResponse),
                ("compact", "KV/Compact", pb.CompactionRequest, pb.CompactionResponse),
                ("lease", "Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse),
                ("status", "Maintenance/Status", pb.StatusRequest, pb.StatusResponse),
            )
        }
        self.watch = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )


class EtcdWatch:
    """A stream of changes from one member. Iterate once; any thread may end it, or ask."""

    def __init__(
        self, client: EtcdClient, number: int, member: _Member, wanted: pb.WatchCreateRequest
    ) -> None:
        self._client = client
        self._number = number
        self._asked: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        self._asked.put(pb.WatchRequest(create_request=wanted))
        self._stream = member.watch(iter(self._asked.get, None), metadata=HAS_LEADER)

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        """Yield responses until the stream breaks; then switch to another member."""
        try:
            yield from self._stream
        except grpc.RpcError:
            self._client.leave(self._number)
        finally:
            self.close()

    def ask_progress(self) -> None:
        """Ask the member up to which revision all changes have been sent."""
        self._asked.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    def close(self) -> None:
        """End the stream."""
        self._asked.put(None)
        self._stream.cancel()

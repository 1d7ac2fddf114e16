"""etcd's API in this process, as far as the store asks for it: one member, which can fail to order.

What it does is compared with a real etcd by running the same tests on both (`make conformance`).
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

import grpc

from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb

COMPACTED = "etcdserver: mvcc: required revision has been compacted"


class FakeEtcd:
    """Serves on a free port: `with FakeEtcd() as etcd: EtcdAddress.read(etcd.url)`."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.keys: dict[bytes, pb.KeyValue] = {}
        self.log: list[pb.Event] = []
        self.leases: list[int] = []
        self.lock = threading.RLock()
        # What happens instead of the next calls of a method: `lost` answers have been done.
        self.faults: dict[str, list[str]] = {}
        self.calls: list[str] = []
        self.hold = threading.Event()  # while it is not set, watches are behind
        self.hold.set()
        self._watches: list[queue.SimpleQueue[pb.WatchResponse | None]] = []
        # Each watch has a thread as long as it lasts.
        self._server = grpc.server(ThreadPoolExecutor(64))
        handlers = (
            ("KV", "Range", pb.RangeRequest, pb.RangeResponse, self.range),
            ("KV", "Txn", pb.TxnRequest, pb.TxnResponse, self.transact),
            ("KV", "Compact", pb.CompactionRequest, pb.CompactionResponse, self.compact),
            ("Lease", "LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse, self.lease),
            ("Maintenance", "Status", pb.StatusRequest, pb.StatusResponse, self.status),
        )
        for service, name, request, response, method in handlers:
            handler = grpc.unary_unary_rpc_method_handler(
                self._faulty(name, method), request.FromString, response.SerializeToString
            )
            self._serve(service, name, handler)
        watch = grpc.stream_stream_rpc_method_handler(
            self.watch, pb.WatchRequest.FromString, pb.WatchResponse.SerializeToString
        )
        self._serve("Watch", "Watch", watch)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self.cut_watches()
        self._server.stop(0).wait()

    def fail(self, method: str, *how: str) -> None:
        """Have the next calls fail: "refused" before anything is done, "lost" after it."""
        self.faults.setdefault(method, []).extend(how)

    def cut_watches(self) -> None:
        """Break all watches."""
        with self.lock:
            for watch in self._watches:
                watch.put(None)
            self._watches.clear()

    def write(self, key: bytes = b"", value: bytes = b"", *, delete: bytes = b"") -> None:
        """Write a key, or delete one, beside all servers."""
        op = pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))
        if delete:
            op = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=delete))
        self.transact(pb.TxnRequest(success=[op]))

    # --- methods --------------------------------------------------------------------------

    def range(self, request: pb.RangeRequest, context: Any = None) -> pb.RangeResponse:
        with self.lock:
            keys = self.keys
            if request.revision and request.revision < self.revision:
                if request.revision < self.compacted:
                    context.abort(grpc.StatusCode.OUT_OF_RANGE, COMPACTED)
                keys = self._past(request.revision)
            found = [keys[key] for key in sorted(keys) if _within(key, request)]
            answer = pb.RangeResponse(header=self._header(), count=len(found))
            if not request.count_only:
                answer.kvs.extend(found[: request.limit or None])
                answer.more = bool(request.limit) and len(found) > request.limit
            return answer

    def transact(self, request: pb.TxnRequest, context: Any = None) -> pb.TxnResponse:
        with self.lock:
            succeeded = all(map(self._holds, request.compare))
            answer = pb.TxnResponse(succeeded=succeeded)
            events: list[pb.Event] = []
            for op in request.success if succeeded else request.failure:
                if op.HasField("request_put"):
                    self._put(op.request_put, events)
                    answer.responses.add().response_put.SetInParent()
                elif op.HasField("request_delete_range"):
                    self._delete(op.request_delete_range, events)
                    answer.responses.add().response_delete_range.SetInParent()
                else:
                    found = self.range(op.request_range)
                    answer.responses.add().response_range.CopyFrom(found)
            if events:
                self.revision += 1
                self.log += events
                for watch in self._watches:
                    watch.put(pb.WatchResponse(header=self._header(), events=events))
            answer.header.CopyFrom(self._header())
            return answer

    def compact(self, request: pb.CompactionRequest, context: Any) -> pb.CompactionResponse:
        with self.lock:
            if request.revision <= self.compacted:
                context.abort(grpc.StatusCode.OUT_OF_RANGE, COMPACTED)
            self.compacted = request.revision
            return pb.CompactionResponse(header=self._header())

    def lease(self, request: pb.LeaseGrantRequest, context: Any) -> pb.LeaseGrantResponse:
        with self.lock:
            self.leases.append(request.TTL)
            return pb.LeaseGrantResponse(ID=len(self.leases), TTL=request.TTL)

    def status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        return pb.StatusResponse(version="3.6.0")

    def watch(self, requests: Iterator[pb.WatchRequest], context: Any) -> Iterator[Any]:
        wanted = next(requests).create_request
        with self.lock:
            if self.faults.get("Watch"):
                self.faults["Watch"].pop(0)
                context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
        found: queue.SimpleQueue[pb.WatchResponse | None] = queue.SimpleQueue()
        with self.lock:
            found.put(pb.WatchResponse(header=self._header(), created=True))
            if wanted.start_revision <= self.compacted:
                found.put(pb.WatchResponse(canceled=True, compact_revision=self.compacted))
            missed = [one for one in self.log if one.kv.mod_revision >= wanted.start_revision]
            if missed:
                found.put(pb.WatchResponse(header=self._header(), events=missed))
            self._watches.append(found)
        context.add_callback(lambda: found.put(None))

        def listen() -> None:
            with suppress(Exception):  # the stream was cancelled
                for request in requests:
                    if request.HasField("progress_request"):
                        with self.lock:
                            found.put(pb.WatchResponse(header=self._header(), watch_id=-1))

        threading.Thread(target=listen, daemon=True).start()
        while (answer := found.get()) is not None:
            self.hold.wait()
            events = [one for one in answer.events if _within(one.kv.key, wanted)]
            if events or not answer.events:
                del answer.events[:]
                answer.events.extend(events)
                yield answer

    # --- within ---------------------------------------------------------------------------

    def _serve(self, service: str, name: str, handler: grpc.RpcMethodHandler) -> None:
        generic = grpc.method_handlers_generic_handler(f"etcdserverpb.{service}", {name: handler})
        self._server.add_generic_rpc_handlers((generic,))

    def _faulty(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Any:
            with self.lock:
                self.calls.append(name)
                faults = self.faults.get(name)
                fault = faults.pop(0) if faults else ""
            if fault == "refused":
                context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed")
            if fault == "full":
                context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"
                )
            if fault == "large":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large")
            answer = method(request, context)
            if fault == "lost":
                context.abort(grpc.StatusCode.UNAVAILABLE, "error reading from server: EOF")
            return answer

        return call

    def _header(self) -> pb.ResponseHeader:
        return pb.ResponseHeader(revision=self.revision)

    def _holds(self, compare: pb.Compare) -> bool:
        found = [self.keys[key] for key in self.keys if _within(key, compare)] or [pb.KeyValue()]
        for kv in found:
            if compare.target == pb.Compare.MOD:
                here, there = kv.mod_revision, compare.mod_revision
            else:
                here, there = kv.version, compare.version
            if not (here < there if compare.result == pb.Compare.LESS else here == there):
                return False
        return True

    def _put(self, put: pb.PutRequest, events: list[pb.Event]) -> None:
        before = self.keys.get(put.key)
        now = self.revision + 1
        kv = pb.KeyValue(
            key=put.key,
            value=put.value,
            lease=put.lease,
            mod_revision=now,
            create_revision=now if before is None else before.create_revision,
            version=1 if before is None else before.version + 1,
        )
        self.keys[put.key] = kv
        events.append(pb.Event(type=pb.Event.PUT, kv=kv))

    def _delete(self, request: pb.DeleteRangeRequest, events: list[pb.Event]) -> None:
        for key in [key for key in self.keys if _within(key, request)]:
            del self.keys[key]
            kv = pb.KeyValue(key=key, mod_revision=self.revision + 1)
            events.append(pb.Event(type=pb.Event.DELETE, kv=kv))

    def _past(self, revision: int) -> dict[bytes, pb.KeyValue]:
        keys: dict[bytes, pb.KeyValue] = {}
        for event in self.log:
            if event.kv.mod_revision > revision:
                break
            if event.type == pb.Event.PUT:
                keys[event.kv.key] = event.kv
            else:
                keys.pop(event.kv.key, None)
        return keys


def _within(key: bytes, wanted: Any) -> bool:
    return key == wanted.key if not wanted.range_end else wanted.key <= key < wanted.range_end

"""Group commit: writes that wait at the same time become one transaction of etcd.

A transaction costs a write of etcd's log, and a call, however much is in it. Writes are joined if
none depends on another: what one compares, none of the others writes. If a joined transaction
is refused, which one was to blame is not known, and each is sent alone.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.client import Called, EtcdRefused
from dralab.apiserver.storage.etcd.revisions import place

MOST: Final = 32  # writes of a transaction
OPERATIONS: Final = 100  # comparisons of one; etcd --max-txn-ops is 128
BYTES: Final = 512 * 1024  # values of one; etcd --max-request-bytes is 1.5 MiB
AT_ONCE: Final = 1  # transactions on their way


Range = tuple[bytes, bytes]  # the first key of several, and the first behind them


@dataclass(slots=True, eq=False)
class Write:
    """One write and its result.

    `keys` are the revisions of etcd at which keys must have been written last, its own among them;
    `ranges` the latest at which any key of several may have been. `after` puts the write into
    memory; it is called once, by any writer of the same transaction.
    """

    path: bytes
    what: pb.RequestOp
    keys: Mapping[bytes, int]
    ranges: Mapping[Range, int]
    size: int
    after: Callable[[int], None]
    alone: bool = False
    repeated: bool = False  # an earlier try of this write may have happened
    revision: int = 0  # at which it happened; 0 if it did not
    found: pb.KeyValue | None = None  # what was there instead
    error: StorageUnavailable | None = None
    together: "tuple[Write, ...]" = ()  # all of its transaction, in their order
    leads: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._turn.acquire()

    def wait(self) -> None:
        """Wait until it is done, or has to lead the next transaction."""
        self._turn.acquire()

    def go_on(self) -> None:
        """End the wait of its thread."""
        self._turn.release()


class Commits:
    """Carries out writes by `transact`. Each is led by the thread of one of its writers."""

    def __init__(self, transact: Callable[[pb.TxnRequest], Called]) -> None:
        self._transact = transact
        self._lock = threading.Lock()
        self._waiting: list[Write] = []
        self._busy = 0

    def carry_out(self, write: Write) -> None:
        """Return once a write is done; its `error` is raised. StorageUnavailable, EtcdRefused."""
        with self._lock:
            write.leads = self._busy < AT_ONCE
            if write.leads:
                self._busy += 1
            else:
                self._waiting.append(write)
        if not write.leads:
            write.wait()
        if write.leads:
            self._lead(write)
        if write.alone:
            self._send([write])
        if write.error is not None:
            raise write.error

    def _lead(self, first: Write) -> None:
        with self._lock:
            chosen = _joined(first, self._waiting)
            self._waiting = [each for each in self._waiting if each not in chosen]
        try:
            self._send(chosen)
        finally:
            with self._lock:
                following = self._waiting.pop(0) if self._waiting else None
                if following is None:
                    self._busy -= 1
                else:
                    following.leads = True
            if following is not None:
                following.go_on()
            for write in chosen:
                if write is not first:
                    write.go_on()

    def _send(self, writes: list[Write]) -> None:
        # In the order of their places, which is that of their resource versions.
        writes = sorted(writes, key=lambda write: place(write.path))
        try:
            called = self._transact(_request(writes))
        except EtcdRefused as error:
            _refuse(writes, error)
        except StorageUnavailable as error:
            for write in writes:
                write.error = error
        except BaseException:
            for write in writes:  # those of other threads look for themselves
                write.alone = write.repeated = True
            raise
        else:
            _settle(writes, called)


def _joined(first: Write, waiting: Iterable[Write]) -> list[Write]:
    """Return the first of the waiting writes and those that can be sent with it."""
    chosen, places = [first], {place(first.path)}
    paths, keys, ranges, size = {first.path}, dict(first.keys), set(first.ranges), first.size
    for write in waiting:
        if len(chosen) >= MOST:
            break
        path = write.path
        merged = ranges | write.ranges.keys()
        known = len(keys) + len(merged) + len(write.keys)
        if (
            place(path) in places
            or path in keys
            or not paths.isdisjoint(write.keys)
            or size + write.size > BYTES
            or known > OPERATIONS
            or any(keys.get(each, at) != at for each, at in write.keys.items())
            or any(start <= path < end for start, end in ranges)
            or any(start <= each < end for start, end in write.ranges for each in paths)
        ):
            continue
        chosen.append(write)
        places.add(place(path))
        paths.add(path)
        keys |= write.keys
        ranges = merged
        size += write.size
    return chosen


def _request(writes: list[Write]) -> pb.TxnRequest:
    keys: dict[bytes, int] = {}
    ranges: dict[Range, int] = {}
    for write in writes:
        keys |= write.keys
        for each, at in write.ranges.items():
            ranges[each] = min(at, ranges.get(each, at))
    modified = pb.Compare.MOD
    compares = [pb.Compare(target=modified, key=path, mod_revision=at) for path, at in keys.items()]
    compares += [
        pb.Compare(
            result=pb.Compare.LESS, target=modified, key=start, range_end=end, mod_revision=at + 1
        )
        for (start, end), at in ranges.items()
    ]
    # One that is refused alone is told what is there.
    look = [pb.RequestOp(request_range=pb.RangeRequest(key=writes[0].path))]
    return pb.TxnRequest(
        compare=compares,
        success=[write.what for write in writes],
        failure=look if len(writes) == 1 else [],
    )


def _refuse(writes: list[Write], error: StorageUnavailable) -> None:
    """Record that nothing was written: each write is then sent alone, to find the failing one."""
    for write in writes:
        if len(writes) > 1:
            write.alone = True
        else:
            write.error = error


def _settle(writes: list[Write], called: Called) -> None:
    answer = called.answer
    together = tuple(writes)
    for write in writes:
        if answer.succeeded:
            write.revision, write.together, write.alone = (
                int(answer.header.revision),
                together,
                False,
            )
            continue
        write.repeated |= called.repeated
        if len(writes) > 1:
            write.alone = True
        else:
            found = answer.responses[0].response_range.kvs
            write.found = found[0] if found else None

"""Group commit: writes that wait at the same time become one transaction of etcd.

A transaction costs a write of etcd's log, and a call, however much is in it. Writes are joined if
none depends on another: what one compares, none of the others writes. If a joined transaction
is refused, which one was to blame is not known, and each is sent alone. The thread that takes the
answer of a transaction sends the next one.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import Final

from dralab.apiserver.signals import Signal
from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.client import Called, Done, EtcdRefused
from dralab.apiserver.storage.etcd.revisions import place
from dralab.values.records import dataclass

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
    repeated: bool = False  # an earlier try of this write may have happened
    revision: int = 0  # at which it happened; 0 if it did not
    found: pb.KeyValue | None = None  # what was there instead
    error: StorageUnavailable | None = None
    together: "tuple[Write, ...]" = ()  # all of its transaction, in their order
    done: Signal = field(default_factory=Signal)


class Commits:
    """Carries out writes by `transact`, which says from any thread what became of them.

    `wait` waits until a signal is given from there.
    """

    def __init__(
        self,
        transact: Callable[[pb.TxnRequest, Done], None],
        wait: Callable[[Signal], object] = Signal.wait,
    ) -> None:
        self._transact, self._wait = transact, wait
        self._lock = threading.Lock()
        self._waiting: list[Write] = []
        self._busy = 0

    def carry_out(self, write: Write) -> None:
        """Return once a write is done; its `error` is raised. StorageUnavailable, EtcdRefused."""
        with self._lock:
            self._waiting.append(write)
        if write.done.task is None:
            self._begin()
        else:  # with what others write that are ready now
            write.done.task.after_others(self._begin)
        self._wait(write.done)
        if write.error is not None:
            raise write.error

    def _begin(self) -> None:
        """Send the next transaction, if none is on its way."""
        with self._lock:
            if self._busy >= AT_ONCE or not self._waiting:
                return
            chosen = _joined(self._waiting[0], self._waiting[1:])
            self._waiting = [each for each in self._waiting if each not in chosen]
            self._busy += 1
        self._send(chosen)

    def _send(self, writes: list[Write]) -> None:
        # In the order of their places, which is that of their resource versions.
        writes = sorted(writes, key=lambda write: place(write.path))
        try:
            self._transact(_request(writes), partial(self._end, writes))
        except BaseException:  # the thread of one of the writers was interrupted
            self._end(writes, StorageUnavailable("the writer was interrupted"))
            raise

    def _end(self, writes: list[Write], outcome: Called | StorageUnavailable) -> None:
        """Note what became of a transaction; if it was refused, send each of its writes alone."""
        if writes[0].done.given:
            return  # they were told that it is not known
        apart = not _settle(writes, outcome)
        with self._lock:
            self._busy += len(writes) - 1 if apart else -1
        if apart:
            for write in writes:
                self._send([write])
            return
        self._begin()
        for write in writes:
            write.done.give()


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


def _settle(writes: list[Write], outcome: Called | StorageUnavailable) -> bool:
    """Note what became of writes; return False if that has to be found out for each alone."""
    alone = len(writes) == 1
    if isinstance(outcome, StorageUnavailable):
        if isinstance(outcome, EtcdRefused) and not alone:
            return False
        for write in writes:
            write.error = outcome
        return True
    answer, together = outcome.answer, tuple(writes)
    for write in writes:
        if answer.succeeded:
            write.revision, write.together = int(answer.header.revision), together
            continue
        write.repeated |= outcome.repeated
        if alone:
            found = answer.responses[0].response_range.kvs
            write.found = found[0] if found else None
    return alone or answer.succeeded

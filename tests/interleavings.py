"""Threads that run one at a time: which one is next is drawn from a seed, at every lock.

What a run does depends on its seed alone, so a failure can be repeated. Source of the idea: the
schedulers of loom (Rust) and of Coyote (.NET).
"""

import random
import threading

LATE = 60.0  # seconds of real time until a thread that returns no turn counts as lost


class Deadlock(Exception):  # noqa: N818 - what a test finds
    """Every thread waits for a lock of another one."""


class _Worker:
    def __init__(self, work):
        self.work, self.turn, self.error = work, threading.Semaphore(0), None
        self.done, self.awaited = False, None


class Interleaving:
    """Runs several pieces of work in one order of all that are possible."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.order = []  # whose turn it was
        self._workers, self._by_thread = [], {}
        self._back = threading.Semaphore(0)

    def lock(self):
        """Return a lock that may be taken again by the thread that holds it."""
        return SwitchingLock(self)

    def run(self, *works):
        """Do all of the work. Deadlock, or what a piece of it raises."""
        self._workers = [_Worker(work) for work in works]
        threads = [threading.Thread(target=self._run, args=(each,)) for each in self._workers]
        for thread, worker in zip(threads, self._workers, strict=True):
            thread.daemon = True  # after a deadlock it waits for ever
            thread.start()
            self._by_thread[thread.ident] = worker
        while waiting := [each for each in self._workers if not each.done]:
            ready = [one for one in waiting if one.awaited is None or one.awaited.is_free]
            if not ready:
                raise Deadlock(f"after {len(self.order)} turns")
            worker = self.chance.choice(ready)
            worker.awaited = None
            self.order.append(self._workers.index(worker))
            worker.turn.release()
            if not self._back.acquire(timeout=LATE):
                raise Deadlock(f"thread {self.order[-1]} waits for a lock that is not watched")
        for thread, worker in zip(threads, self._workers, strict=True):
            thread.join()
            if worker.error is not None:
                raise worker.error

    def pause(self, awaited=None):
        """Let another thread go on, until `awaited` is free."""
        worker = self._by_thread.get(threading.get_ident())
        if worker is not None:
            worker.awaited = awaited
            self._back.release()
            worker.turn.acquire()

    def _run(self, worker):
        worker.turn.acquire()
        try:
            worker.work()
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            worker.error = error
        worker.done = True
        self._back.release()


class SwitchingLock:
    """A lock as `threading.RLock`, before and after which any other thread may go on."""

    def __init__(self, interleaving):
        self._interleaving = interleaving
        self._owner, self._depth = None, 0

    @property
    def is_free(self):
        return self._owner is None

    def acquire(self, blocking=True, timeout=-1):
        me = threading.get_ident()
        if self._owner != me:
            self._interleaving.pause()
            while not self.is_free:
                if not blocking:
                    return False
                self._interleaving.pause(self)
            self._owner = me
        self._depth += 1
        return True

    def release(self):
        assert self._owner == threading.get_ident()
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._interleaving.pause()

    def _is_owned(self):
        return self._owner == threading.get_ident()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

"""Threads that run one at a time: which one is next is drawn from a seed.

At every lock, and at lines of some modules, which the seed draws, too. What a run does depends on
its seed alone, so a failure can be repeated. Source of the idea: the schedulers of loom (Rust) and
of Coyote (.NET).
"""

import random
import sys
import threading
from types import SimpleNamespace

LATE = 60.0  # seconds of real time until a thread that returns no turn counts as lost
WATCHED = 8  # modules in which threads change at lines as well
AT_A_LINE = 0.1  # how often


class Deadlock(Exception):  # noqa: N818 - what a test finds
    """Every thread waits for a lock of another one."""


class _Worker:
    def __init__(self, work):
        self.work, self.turn, self.error = work, threading.Semaphore(0), None
        self.done, self.awaited = False, None


class Interleaving:
    """Runs several pieces of work in one order of all that are possible."""

    def __init__(self, seed):
        self.seed, self.chance = seed, random.Random(seed)
        self.order = []  # whose turn it was
        self.files = frozenset()  # in which threads change at lines
        self._workers, self._by_thread = [], {}
        self._back = threading.Semaphore(0)

    def lock(self):
        """Return a lock that may be taken again by the thread that holds it."""
        return SwitchingLock(self)

    def take_over(self, package, monkeypatch, *, also=()):
        """Make the locks of the modules of a package, and change at lines of some, and of others.

        They have to be imported: an import has a lock of its own.
        """
        inside = {
            name: module
            for name, module in sys.modules.items()
            if name.startswith(f"{package}.") and getattr(module, "__file__", None)
        }
        own = SimpleNamespace(**{**vars(threading), "Lock": self.lock, "RLock": self.lock})
        for module in inside.values():
            for name, known in (("Lock", threading.Lock), ("RLock", threading.RLock)):
                if vars(module).get(name) is known:
                    monkeypatch.setattr(module, name, self.lock)
            if "ThreadPoolExecutor" in vars(module):
                monkeypatch.setattr(module, "ThreadPoolExecutor", _NoThreads)
            if vars(module).get("threading") is threading:
                monkeypatch.setattr(module, "threading", own)
        files = sorted(module.__file__ for module in (*inside.values(), *also))
        # By a chance of their own: another module in the package changes no other draw.
        chosen = random.Random(f"{self.seed} files").sample(files, min(WATCHED, len(files)))
        self.files = frozenset(chosen)

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
        if self.files:
            sys.settrace(self._called)
        try:
            worker.work()
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            worker.error = error
        sys.settrace(None)
        worker.done = True
        self._back.release()

    def _called(self, frame, _event, _argument):
        """Follow the lines of a function; not those of an import, which has a lock of its own."""
        code = frame.f_code
        return self._at_line if code.co_filename in self.files and _is_called(code) else None

    def _at_line(self, _frame, event, _argument):
        if event == "line" and self.chance.random() < AT_A_LINE:
            self.pause()
        return self._at_line


def _is_called(code):
    """Whether code is that of a function, not of a module or a class."""
    return bool(code.co_flags & 1)  # CO_OPTIMIZED


class _NoThreads:
    """An executor whose work is done by who asks for it: its threads would take no turns."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, work, items):
        return map(work, items)


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

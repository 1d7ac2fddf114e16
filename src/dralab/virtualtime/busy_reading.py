"""Detects programs that wait by polling the clock.

Such a wait would never end: the clock stands still while a program runs. Reads of the clock are not
seen, as a rule. Here they are made to stop for a moment, are counted, and run freely again.
"""

from typing import Final

from dralab.virtualtime.programs import TracedProcess
from dralab.virtualtime.threads import TracedThread

# Nanoseconds of a processor. A thread that runs on for BUSY is looked at: does it wait by reading
# the clock?
BUSY: Final = 10_000_000
LOOK: Final = 10_000_000
LOOK_AGAIN: Final = 300_000_000
# In one LOOK, and all from one place: a loop reads there again and again. A program that starts (a
# JavaScript engine that times its own parts) may read as often, but from many depths of its stack.
READS_OF_A_SPINNER: Final = 400
LOOKS_AT_A_SPINNER: Final = 3  # with as many reads from changing places: a wait that recurses


class BusyClockReader:
    """Detects a running thread that reads the clock all the time.

    It is asked again and again while one and the same wait for idleness lasts, about the thread
    that is awake. Times are nanoseconds of a processor.
    """

    def __init__(self, until: int) -> None:
        # By thread: its processor time when it was first seen awake.
        self._used: dict[int, int] = {}
        self._trapped: TracedProcess | None = None
        self._until = until
        self._suspicions = 0  # looks that saw many reads, but from changing places
        self._spins = False

    @property
    def close_look(self) -> bool:
        """Whether reads of the clock are being counted."""
        return self._trapped is not None

    def look(self, thread: TracedThread) -> int:
        """Check again; return the nanoseconds by which to advance the clock."""
        used = thread.processor_time()
        if thread.tid not in self._used:
            self._used[thread.tid] = used
        spent = used - self._used[thread.tid]
        if self._spins:
            self._used[thread.tid] = used
            return spent
        if self._trapped is None:
            if spent >= self._until:
                self._trapped, self._until = thread.process, spent + LOOK
                thread.process.reads.clear()
                thread.process.trap(on=True)
        elif max(self._trapped.reads.values(), default=0) >= READS_OF_A_SPINNER:
            self._found(thread, used)
        elif spent >= self._until:
            self._suspicions += self._trapped.reads.total() >= READS_OF_A_SPINNER
            if self._suspicions == LOOKS_AT_A_SPINNER:
                self._found(thread, used)
                return 0
            self.close()
            self._until = spent + LOOK_AGAIN
        return 0

    def _found(self, thread: TracedThread, used: int) -> None:
        self._spins, self._used[thread.tid] = True, used
        self.close()

    def close(self) -> None:
        """Stop counting clock reads."""
        if self._trapped is not None:
            self._trapped.trap(on=False)
            self._trapped = None

"""Which programs wait by reading the clock: the clock creeps on for them, and only for them."""

from collections import Counter
from typing import cast

from dralab.virtualtime.busy_reading import (
    BUSY,
    LOOK,
    LOOK_AGAIN,
    READS_OF_A_SPINNER,
    BusyClockReader,
)
from dralab.virtualtime.programs import TracedProcess
from dralab.virtualtime.threads import TracedThread


class FakeProcess:
    """A process whose reads of the clock are told."""

    def __init__(self) -> None:
        self.reads: Counter[tuple[int, int]] = Counter()
        self.trapped = False

    def trap(self, *, on: bool) -> None:
        self.trapped = on


class FakeThread:
    """A thread that has used as much of a processor as it is told."""

    def __init__(self) -> None:
        self.tid, self.process, self.used = 1, FakeProcess(), 0

    def processor_time(self) -> int:
        return self.used


class Watch:
    """A thread, looked at."""

    def __init__(self) -> None:
        self.thread, self.reader = FakeThread(), BusyClockReader(BUSY)
        self.look(0)

    def look(self, used: int) -> int:
        """Let the thread use a processor for `used` nanoseconds more; return the creep."""
        self.thread.used += used
        return self.reader.look(cast(TracedThread, self.thread))

    def reads_from(self, places: int) -> None:
        """Read the clock as often as a spinner does, from so many places."""
        assert self.thread.process.trapped
        for count in range(READS_OF_A_SPINNER):
            self.thread.process.reads[7, count % places] += 1

    def creeps(self) -> bool:
        """Whether the clock follows the processor time from now on."""
        assert self.look(0) == 0
        return (self.look(1000), self.look(500)) == (1000, 500)


def test_a_loop_that_reads_at_one_place_makes_the_clock_creep():
    watch = Watch()
    watch.look(BUSY)
    watch.reads_from(1)
    assert watch.creeps()
    assert not watch.thread.process.trapped


def test_one_read_fewer_is_not_a_loop():
    watch = Watch()
    watch.look(BUSY)
    watch.reads_from(1)
    watch.thread.process.reads[7, 0] -= 1
    assert not watch.creeps()


def test_a_program_that_starts_reads_as_often_from_many_places():
    watch = Watch()
    watch.look(BUSY)
    watch.reads_from(20)
    assert not watch.creeps()
    watch.look(LOOK)
    assert not watch.thread.process.trapped
    watch.look(LOOK_AGAIN)  # what was counted in one look does not count in the next one
    assert not watch.creeps()


def test_a_wait_that_recurses_is_found_by_its_third_look():
    watch = Watch()
    watch.look(BUSY)
    for _ in range(2):
        watch.reads_from(20)
        watch.look(LOOK)
        watch.look(LOOK_AGAIN)
    watch.reads_from(20)
    assert watch.look(LOOK) == 0
    assert watch.look(1) == 1


def test_reads_of_a_thread_that_is_soon_idle_are_never_counted():
    watch = Watch()
    watch.look(BUSY - 1)
    assert not watch.thread.process.trapped
    assert cast(TracedProcess, watch.thread.process).reads == {}

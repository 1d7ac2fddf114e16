"""The schedulers that only count processors: by hand, and against a search second by second."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.engines.batch.test_batch import starts

from dralab.simulation.engines.batch.availability import CountedAvailability

HOSTS = 5
JOBS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, HOSTS), st.integers(0, 6), st.integers(1, 8)),
    min_size=1,
    max_size=9,
).map(lambda jobs: [(at, width, run + more, run) for at, width, more, run in sorted(jobs)])


def test_shortest_first_backfills_the_shortest_walltime_and_equal_ones_in_order():
    # One processor is free beside the first job while the second waits for all four.
    jobs = [(0, 3, 20, 20), (1, 4, 9, 9), (1, 1, 9, 9), (1, 1, 5, 5), (1, 1, 5, 5)]
    assert starts("easy-counting", *jobs) == [0, 20, 1, 10, 15]
    assert starts("easy-sjbf", *jobs) == [0, 20, 11, 1, 6]


def test_reservations_of_counted_processors_need_no_common_machines():
    # The third job is promised three machines from 3 on, leftmost: machine 0, too, which is free from
    # 1 to 3. By counting, one processor is free from 1 on.
    jobs = [(0, 1, 1, 1), (0, 3, 3, 3), (0, 3, 4, 4), (1, 1, 3, 3)]
    assert starts("conservative", *jobs) == [0, 0, 3, 3]
    assert starts("conservative-counting", *jobs) == [0, 0, 3, 1]


def test_a_job_that_ends_early_moves_reservations_in_the_order_of_the_queue():
    # Promised at 10 and 20. The first job ends at 4, the last one at 5.
    jobs = [(0, 3, 10, 4), (0, 4, 10, 10), (1, 2, 8, 8), (2, 1, 3, 3)]
    assert starts("conservative-counting", *jobs) == [0, 5, 15, 2]


def by_seconds(jobs):
    """Conservative back-filling, one second after the other."""
    held, begun, queue, second = {}, {}, [], 0

    def used(at):
        return sum(jobs[job][1] for job, (start, end) in held.items() if start <= at < end)

    def promise(job):
        _, width, walltime, _ = jobs[job]
        start = second
        while any(used(at) + width > HOSTS for at in range(start, start + walltime)):
            start += 1
        held[job] = (start, start + walltime)

    while len(begun) < len(jobs):
        ended = [job for job, start in begun.items() if start + jobs[job][3] == second]
        for job in ended:
            held[job] = (begun[job], second)
        fresh = [job for job, (at, *_) in enumerate(jobs) if at == second]
        queue += fresh
        for job in list(queue) if ended else fresh:
            held.pop(job, None)
            promise(job)
            if held[job][0] == second:
                begun[job] = second
                queue.remove(job)
        second += 1
    return [begun[job] for job in range(len(jobs))]


@settings(max_examples=300)
@given(JOBS)
def test_conservative_by_counting_is_what_a_search_second_by_second_finds(jobs):
    assert starts("conservative-counting", *jobs, hosts=HOSTS) == by_seconds(jobs)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), max_size=12))
def test_what_is_counted_and_released_leaves_the_count_as_it_was(jobs):
    plan = CountedAvailability(0b1111110)
    for placement in [plan.reserve_earliest(width, length) for width, length in jobs]:
        plan.cancel(placement, 0)
    again = plan.reserve_earliest(6, 100)
    assert (again.start, again.machines.bit_count()) == (0, 6)

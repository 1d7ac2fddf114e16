"""What holds for all tests."""

import contextlib
import gc
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# The same examples every time, so that a run can be repeated; DRALAB_EXPLORE looks for new ones,
# and for more. Timing decides nothing: a busy machine is no reason to fail.
EXPLORES = "DRALAB_EXPLORE" in os.environ
settings.register_profile(
    "dralab",
    deadline=None,
    derandomize=not EXPLORES,
    max_examples=1000 if EXPLORES else 50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dralab")
# Hypothesis draws constants from all modules of ours that are imported: which examples a test has
# would depend on the tests that are run with it. It would parse a thousand modules for them, too.
providers._get_local_constants = lambda: providers._local_constants

# What the locks of a server guard is asserted in all tests, and in processes that they start.
os.environ["DRALAB_ASSERT_LOCKS"] = "1"

STARTED = pytest.StashKey[set[int]]()  # processes that were there when a test's call began
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--shuffle SEED`, the same tests in another order, `--seeds N` and `--first-seed N`."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    told = "seeds of each test that runs programs under faults (its own number otherwise)"
    parser.addoption("--seeds", type=int, metavar="N", help=told)
    told = "the first of the seeds of interleavings"
    parser.addoption("--first-seed", type=int, metavar="N", default=0, help=told)


def pytest_collection() -> None:
    """Collect without a search for garbage: half a million objects are made, and all stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later search for garbage."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the modules, and the tests in each: what a module shares is still made once."""
    seed = config.getoption("shuffle")
    if seed is None:
        return
    chance = random.Random(seed)  # the same in each worker of xdist
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    order = list(modules.values())
    chance.shuffle(order)
    for tests in order:
        chance.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Remember whether a test failed, and which processes were there before it."""
    item.stash[STARTED] = descendants()
    try:
        yield
    except BaseException:
        item.stash[FAILED] = True
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """End the processes that a failed test has left, once its fixtures are gone."""
    result = yield
    if item.stash.get(FAILED, False):
        for process in descendants() - item.stash[STARTED]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    return result


def descendants(process: int | str = "self") -> set[int]:
    """Return the processes that a process has started, and those that they have started."""
    found = set()
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found |= {child, *descendants(child)}
    return found


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Callable[[int], range]:
    """Return the seeds of a test of programs under faults: as many as it says, or `--seeds`."""
    asked = request.config.getoption("seeds")
    return lambda usual: range(asked or usual)

"""Executes runs: each finished run is a file named by a digest of its inputs.

A stopped campaign therefore continues where it was, a finished run is never repeated, and a run
whose scenario changed is a new run. Files are written to a temporary name and renamed, so that none
is ever incomplete.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Protocol

import orjson

from dralab.kernel.extras import require
from dralab.scenarios.errors import InputError, content_of
from dralab.simulation.campaigns.grid import CampaignCase, Numbers

Answer = Numbers | Exception


class Executor(Protocol):
    """Runs cases somewhere, and yields them as they are done."""

    def run(self, cases: Sequence[CampaignCase]) -> Iterator[tuple[CampaignCase, Answer]]:
        """Yield each case with its numbers, or with its error."""
        ...


class ProcessExecutor:
    """Processes of this machine; with one worker, this process."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

    def run(self, cases: Sequence[CampaignCase]) -> Iterator[tuple[CampaignCase, Answer]]:
        """Yield each case with its numbers, as they are done."""
        if self.workers == 1 or len(cases) == 1:
            for case in cases:
                yield case, _answer(case.run)
            return
        # Spawned, not forked: threads and sockets of a server do not survive a fork.
        others = set(active_children())
        with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
            with _deaf():
                futures = {pool.submit(CampaignCase.run, case): case for case in cases}
            workers = set(active_children()) - others
            try:
                for future in _done(futures):
                    yield futures[future], _answer(future.result)
            except BaseException:
                for process in workers:
                    process.terminate()
                raise


@contextmanager
def _deaf() -> Iterator[None]:
    """Let processes that start here ignore Ctrl-C: their parent ends them."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class DaskExecutor:
    """Workers of a Dask cluster (extra: distributed); its files must have the same paths."""

    def __init__(self, address: str) -> None:
        require("distributed", "--engine dask")
        self.module: Any = import_module("distributed")
        self.client = self.module.Client(address)

    def run(self, cases: Sequence[CampaignCase]) -> Iterator[tuple[CampaignCase, Answer]]:
        """Yield each case with its numbers, as they are done."""
        futures = {self.client.submit(CampaignCase.run, case, pure=False): case for case in cases}
        try:
            for future in self.module.as_completed(list(futures)):
                yield futures[future], _answer(future.result)
        finally:
            self.client.close()


def _answer(run: Callable[[], Numbers]) -> Answer:
    """Return the numbers, or the error: the other runs continue."""
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - told when the others are done
        return error


def _done(futures: Iterable["Future[Numbers]"]) -> Iterator["Future[Numbers]"]:
    left = set(futures)
    while left:
        finished, left = wait(left, return_when=FIRST_COMPLETED)
        yield from finished


def run(
    cases: Sequence[CampaignCase],
    folder: Path,
    executor: Executor,
    *,
    progress: Callable[[int, int, int], None] | None = None,
    interruptible: bool = False,
) -> dict[CampaignCase, Numbers]:
    """Run unfinished cases; return all numbers. `progress` gets done, reused and all.

    An `interruptible` campaign returns what there is at Ctrl-C. InputError: runs failed; the others
    are done and kept.
    """
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    digests = {case: case.digest() for case in cases}
    found: dict[CampaignCase, Numbers] = {}
    for case, digest in digests.items():
        path = runs / f"{digest}.json"
        if path.exists():
            found[case] = orjson.loads(content_of(path))["numbers"]
    reused = len(found)
    missing = [case for case in cases if case not in found]
    if progress is not None:
        progress(len(found), reused, len(cases))
    failed: list[tuple[CampaignCase, Exception]] = []
    try:
        for case, numbers in executor.run(missing):
            if isinstance(numbers, Exception):
                failed.append((case, numbers))
                continue
            _write(runs / f"{digests[case]}.json", case, numbers)
            found[case] = numbers
            if progress is not None:
                progress(len(found), reused, len(cases))
    except KeyboardInterrupt:
        if not interruptible:
            raise
    if failed:
        case, error = failed[0]
        problem = f"{len(failed)} of {len(cases)} runs failed; the others are kept. The first: "
        told = str(error) if isinstance(error, InputError) else repr(error)
        where = f"{case.scheduler}, seed {case.seed}"
        raise InputError(case.scenario, problem + told, where=where) from error
    return {case: found[case] for case in cases if case in found}


def _write(path: Path, case: CampaignCase, numbers: Numbers) -> None:
    value = {
        "scenario": case.name,
        "scheduler": case.scheduler,
        "seed": case.seed,
        "numbers": numbers,
    }
    aside = path.with_suffix(f".{os.getpid()}.part")
    aside.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    aside.replace(path)

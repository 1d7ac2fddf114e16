"""Runs checks on parallel benches, and reports how each of them ended.

Most checks wait for the driver, so several benches (`lanes`) work at the same time. The results
are in the order of the catalog.
"""

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import Check, Level
from dralab.drivercheck.check_node import RunFiles
from dralab.drivercheck.rules import CheckFailed, CheckNeed, NotApplicable
from dralab.drivercheck.sockets import DriverCallError
from dralab.drivercheck.targets import TargetError
from dralab.kernel.clock import SECOND, Clock, WallClock

LANES: Final = 4


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # it does not apply to this driver, or to the way in which it is run
    BLOCKED = "blocked"  # the driver never came up


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check: why it failed or was skipped, the transcript, the seconds."""

    check: Check
    outcome: Outcome
    text: str = ""
    transcript: Sequence[str] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a driver."""

    target: str
    driver: str
    results: Sequence[CheckResult]
    seconds: float

    def count(self, outcome: Outcome, level: Level | None = None) -> int:
        """Return how many checks have that outcome."""
        return sum(
            each.outcome is outcome and level in (None, each.check.level) for each in self.results
        )

    @property
    def conformant(self) -> bool:
        """Whether all MUSTs that apply are kept, and at least one applies."""
        return (
            not self.count(Outcome.FAILED, Level.MUST)
            and not self.count(Outcome.BLOCKED)
            and self.count(Outcome.PASSED) > 0
        )


class Runner:
    """Runs checks against one target. `bench` makes a new bench, not yet entered."""

    def __init__(
        self,
        bench: Callable[[], Bench],
        checks: Sequence[Check],
        *,
        lanes: int = LANES,
        on_result: Callable[[CheckResult], None] = lambda _result: None,
        clock: Clock | None = None,
    ) -> None:
        self.bench = bench
        self.checks = checks
        self.lanes = lanes
        self.on_result = on_result
        self.clock = clock or WallClock()
        self.driver = ""
        self._blocked = ""
        self._stopping = False
        self._lock = threading.Lock()
        self._open: set[Bench] = set()
        self._waiting: list[Check] = []
        self._results: dict[str, CheckResult] = {}
        self._files = RunFiles()

    def run(self) -> Report:
        """Run all checks. TargetError: the driver can't even be started, or ends at once."""
        begin = self.clock.now()
        self._waiting = sorted(self.checks, key=lambda c: (not c.last, c.long, c.fresh))
        lanes = max(1, min(self.lanes, len(self._waiting)))
        with RunFiles() as self._files, ThreadPoolExecutor(lanes, "driver-check") as pool:
            first = self._tried()
            futures = [
                pool.submit(self._lane, first if lane == 0 else None) for lane in range(lanes)
            ]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stop()
                raise
        return Report(
            target=self.bench().target.name,
            driver=self.driver,
            results=[self._results[check.id] for check in self.checks],
            seconds=(self.clock.now() - begin) / SECOND,
        )

    def _stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._waiting.clear()
            benches = list(self._open)
        for bench in benches:
            for instance in (bench.instance, *bench.others):
                if instance is not None:
                    instance.kill()

    def _next(self) -> Check | None:
        with self._lock:
            # Long checks are at the end of the list, and run first.
            return self._waiting.pop() if self._waiting else None

    def _tried(self) -> Bench | None:
        """Return a bench with the driver, if it starts; else checks report why it does not.

        TargetError: it has ended, or has no socket. Then there is nothing that could be checked.
        """
        bench = self._opened()
        try:
            bench.start()
        except (CheckFailed, DriverCallError):
            problem = bench.start_problem()
            self._close(bench)
            if problem:
                raise TargetError(f"{bench.target.name}: {problem}") from None
            return None
        except BaseException:
            self._close(bench)
            raise
        return bench

    def _lane(self, shared: Bench | None = None) -> None:
        try:
            while (check := self._next()) is not None:
                begin = self.clock.now()
                if check.fresh:
                    bench = self._opened()
                    try:
                        result = self._run(check, bench)
                    finally:
                        self._close(bench)
                else:
                    if shared is None:
                        shared = self._opened()
                    result = self._run(check, shared)
                    if result.outcome in (Outcome.FAILED, Outcome.BLOCKED) or shared.broken:
                        self._close(shared)
                        shared = None
                self._note(result, (self.clock.now() - begin) / SECOND)
        finally:
            if shared is not None:
                self._close(shared)

    def _opened(self) -> Bench:
        bench = self.bench()
        bench.node.files = self._files
        bench.__enter__()
        with self._lock:
            self._open.add(bench)
        return bench

    def _close(self, bench: Bench) -> None:
        with self._lock:
            self._open.discard(bench)
        bench.__exit__()

    def _run(self, check: Check, bench: Bench) -> CheckResult:
        missing = _needs_met(bench, check.needs)
        if missing:
            return CheckResult(check=check, outcome=Outcome.SKIPPED, text=missing)
        if not check.fresh and self._blocked:
            return CheckResult(check=check, outcome=Outcome.BLOCKED, text=self._blocked)
        bench.transcript.begin()
        if not check.fresh and bench.info is None:
            try:
                bench.start()
            except (CheckFailed, DriverCallError) as error:
                self._blocked = f"the driver doesn't come up: {error}"
                return self._ended(check, bench, Outcome.BLOCKED, self._blocked)
        bench.transcript.begin()
        result = self._judged(check, bench)
        if not check.fresh:
            bench.tidy()
            if bench.instance is not None and not bench.instance.running:
                bench.broken = "the driver has ended"
        if bench.info is not None and not self.driver:
            self.driver = bench.info.name
        return result

    def _judged(self, check: Check, bench: Bench) -> CheckResult:
        try:
            check.run(bench)
        except CheckFailed as error:
            return self._ended(check, bench, Outcome.FAILED, str(error))
        except DriverCallError as error:
            return self._ended(check, bench, Outcome.FAILED, f"a call failed: {error}")
        except NotApplicable as error:
            return self._ended(check, bench, Outcome.SKIPPED, str(error))
        except TargetError:
            raise
        except Exception as error:  # noqa: BLE001 - one check must not end the others
            text = f"the check itself failed: {type(error).__name__}: {error}"
            lines = traceback.format_exc().splitlines()
            return self._ended(check, bench, Outcome.FAILED, "\n".join([text, *lines[-8:]]))
        return CheckResult(check=check, outcome=Outcome.PASSED)

    @staticmethod
    def _ended(check: Check, bench: Bench, outcome: Outcome, text: str) -> CheckResult:
        lines = [] if outcome is Outcome.SKIPPED else bench.transcript.lines()
        instance = bench.instance
        if lines and instance is not None and bench.unwanted_end:
            bench.wait(0.1)  # it may be about to end
        if lines and instance is not None and not instance.running and bench.unwanted_end:
            lines += ["the driver has ended; its last output:", *instance.output().splitlines()]
        return CheckResult(check=check, outcome=outcome, text=text, transcript=lines)

    def _note(self, result: CheckResult, seconds: float) -> None:
        found = CheckResult(
            check=result.check,
            outcome=result.outcome,
            text=result.text,
            transcript=result.transcript,
            seconds=seconds,
        )
        with self._lock:
            self._results[result.check.id] = found
            if not self._stopping:
                self.on_result(found)


def _needs_met(bench: Bench, needs: frozenset[CheckNeed]) -> str:
    """Return the reason to skip a check on a bench; empty if it can run."""
    reasons = {
        CheckNeed.RESTART: "the bench can't restart the driver: give its command",
        CheckNeed.INSTANCES: "two instances need {pod_uid} in the driver's command",
        CheckNeed.API: "the driver uses an API server of its own: give its command",
        CheckNeed.USAGE: "the driver's process is not known",
        CheckNeed.BOOT_ID: "this machine gives the driver no mount namespace for another boot id",
        CheckNeed.CLOCK: "the driver can't have a virtual clock: give its command, on Linux x86-64",
        CheckNeed.CDI_PLACE: "the CDI directory is mounted, and can't be taken from the driver",
        CheckNeed.PREVIOUS: "an older version is needed: --previous COMMAND",
        CheckNeed.HEALTH_HOOK: "a command that makes a device unhealthy is needed: --health-hook",
    }
    offers = set(bench.target.offers)
    if bench.previous is not None:
        offers.add(CheckNeed.PREVIOUS)
    if bench.has_health_hook:
        offers.add(CheckNeed.HEALTH_HOOK)
    return next((why for need, why in reasons.items() if need in needs - offers), "")

"""`dralab simulate program`: run any program in simulated time."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._components import duration_of
from dralab.cli._options import arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.kernel.clock import WallClock, from_rfc3339, rfc3339

if TYPE_CHECKING:
    from dralab.virtualtime import StartedProgram, Supervisor

REPEATABLE_START: Final = "2026-01-01T00:00:00Z"
GRACE: Final = 5.0  # real seconds that a program has to end after a signal
FALLBACK: Final = (
    "without one, `dralab simulate run --scheduler external` waits until a scheduler is quiet"
)


@click.command(context_settings={"ignore_unknown_options": True})
@options
def program(
    *,
    start: str | None = opt(
        "The first time the clock shows, such as 2026-01-01T00:00:00Z; default: now, or that time"
        " with --seed.",
        metavar="TIME",
    ),
    seed: int | None = opt(
        "The seed of random choices; the same seed gives the same result. Random bytes, process"
        " IDs and the order of threads follow from it, so keys are not secret.",
    ),
    until: str | None = opt(
        "End the program after this simulated time, such as 24h.", metavar="DURATION"
    ),
    speed: str = opt(
        "Clock speed: as fast as the waits allow, or a multiple of real time (100x).",
        metavar="max|NUMBERx",
        default="max",
    ),
    network: bool = opt(
        "Allow connections to other machines; while one is open, the clock runs in real time."
    ),
    command: Sequence[str] = arg(click.UNPROCESSED, nargs=-1, required=True),
) -> None:
    """Run COMMAND, its threads and its children in simulated time.

    The program is not changed. When all of it waits, the clock jumps to the end of the next sleep,
    timer or timeout. Exits with COMMAND's exit code, and ends processes that COMMAND leaves
    running. Needs Linux on x86-64, but not root. With --seed, it runs the same way each time, byte
    for byte.

    Example: `dralab simulate program --until 24h -- sh -c "while date; do sleep 3600; done"`
    """
    from dralab.virtualtime import ClockUnavailableError, ProgramStartError, Supervisor

    begin = _start(start if seed is None or start else REPEATABLE_START)
    end = None if until is None else begin + duration_of(until, "--until")
    factor = _speed(speed)
    interruption = _Interruption()
    try:
        with (
            interruption,
            Supervisor(
                start=begin, outside=network, seed=seed, gates=seed is not None, note=_note
            ) as supervisor,
        ):
            program = supervisor.start(command)
            code = _run(supervisor, program, end, factor, interruption, begin)
    except ClockUnavailableError as error:
        raise UnusableInput(f"{error}; {FALLBACK}") from None
    except ProgramStartError as error:
        raise UnusableInput(str(error)) from None
    sys.exit(code)


def _run(
    supervisor: "Supervisor",
    program: "StartedProgram",
    until: int | None,
    speed: float | None,
    interruption: "_Interruption",
    start: int,
) -> int:
    from dralab.virtualtime.pacing import RunEnding, run

    began = time.perf_counter()
    ending = run(
        supervisor, program, until=until, speed=speed, stop=lambda: bool(interruption.signals)
    )
    if ending is not RunEnding.ENDED:
        code = _end(supervisor, program, interruption)
    else:
        code = program.returncode or 0
        code = code if code >= 0 else 128 - code
    left = ", ".join(f"{name} ({pid})" for pid, name in sorted(supervisor.running.items()))
    if left:
        _note(f"ended processes that {program.arguments[0]} left running: {left}")
    passed = timedelta(microseconds=(supervisor.now - start) // 1000)
    _note(
        f"{passed} passed in {time.perf_counter() - began:.2f} s, to {rfc3339(supervisor.now)}; "
        f"{supervisor.jumps} jumps"
    )
    return code


def _end(supervisor: "Supervisor", program: "StartedProgram", interruption: "_Interruption") -> int:
    """Forward the signal that stopped us to the program; return our exit code."""
    from dralab.virtualtime.pacing import run

    number = interruption.signals[0] if interruption.signals else signal.SIGTERM
    if program.returncode is None and not (number == signal.SIGINT and _at_the_terminal()):
        os.kill(program.pid, number)
    seen, limit = len(interruption.signals), time.perf_counter() + GRACE
    run(
        supervisor,
        program,
        stop=lambda: len(interruption.signals) > seen or time.perf_counter() > limit,
    )
    return 128 + number if interruption.signals else 0


def _at_the_terminal() -> bool:
    """Whether the terminal has sent its SIGINT to the program, too."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


class _Interruption:
    """The signals received that ask us to stop, in order."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._came)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() has returned

    def _came(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)


def _note(line: str) -> None:
    echo(f"clock: {line}", err=True)


def _start(text: str | None) -> int:
    if text is None:
        return WallClock().now()
    try:
        start = from_rfc3339(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2026-01-01T00:00:00Z", param_hint="--start"
        ) from None
    if not 0 <= start < 1 << 62:
        raise click.BadParameter(f"{text!r} is before 1970 or after 2116", param_hint="--start")
    return start


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0
    if not 0 < factor <= 1e9:
        raise click.BadParameter(
            f"{text!r} is not max or a factor such as 100x", param_hint="--speed"
        )
    return factor

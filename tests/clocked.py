"""Programs under a clock, for tests: run one to its end, and say what it printed."""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from dralab.virtualtime import Supervisor, unavailable
from dralab.virtualtime.pacing import RunEnding, run

START = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
SECOND = 1_000_000_000


REASON = unavailable()
needs_clock = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@dataclass(frozen=True)
class Result:
    """What a program did."""

    code: int | None
    lines: list[str]
    notes: list[str]
    passed: float
    left: list[str]
    ending: RunEnding
    jumps: int = 0


def clocked(
    arguments: Sequence[str],
    *,
    until: float | None = None,
    outside: bool = False,
    seed: int | None = None,
) -> Result:
    """Run a program under a clock; with a seed, as it is repeated."""
    notes: list[str] = []
    with tempfile.TemporaryFile() as output:
        with Supervisor(
            start=START, note=notes.append, outside=outside, seed=seed, gates=seed is not None
        ) as supervisor:
            program = supervisor.start(arguments, stdout=output.fileno(), stderr=output.fileno())
            end = None if until is None else START + int(until * SECOND)
            ending = run(supervisor, program, until=end)
            left, jumps = list(supervisor.running.values()), supervisor.jumps
            passed = (supervisor.now - START) / SECOND
        output.seek(0)
        lines = output.read().decode().splitlines()
    return Result(program.returncode, lines, notes, passed, left, ending, jumps)


def python(code: str, **options: float | bool) -> Result:
    """Run Python code under a clock; `elapsed()` in it says how many seconds have passed."""
    return clocked([os.path.realpath(sys.executable), "-I", "-S", "-c", PRELUDE + code], **options)  # type: ignore[arg-type]


PRELUDE = """
import ctypes, errno, os, select, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
began = time.monotonic()
def elapsed(): return round(time.monotonic() - began, 6)
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return result if result != -1 else errno.errorcode[ctypes.get_errno()]
def spec(*seconds):
    return (ctypes.c_long * (2 * len(seconds)))(*[n for s in seconds for n in divmod(int(s * 10**9), 10**9)])
def val(seconds):
    return (ctypes.c_long * 2)(*divmod(int(seconds * 10**6), 10**6))
def seen(words):
    return [words[i] + words[i + 1] / 10**9 for i in range(0, len(words), 2)]
def on(number, handler=lambda *_: None, restart=True):
    signal.signal(number, handler)
    signal.siginterrupt(number, not restart)
"""

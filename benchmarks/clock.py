"""What the virtual clock costs: jumps, reads, computing, forks, and how exact its instants are.

    python -m benchmarks.clock

Wall seconds are of this machine as it is; processor seconds, of the supervisor and of the programs
together, hardly depend on what else runs. Programs without a clock are the yardstick.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dralab.virtualtime import Supervisor
from dralab.virtualtime.pacing import run

PYTHON = os.path.realpath(sys.executable)
SLEEP = "import time\nfor _ in range({n}): time.sleep(1)"
READ = "import time\nread = time.monotonic_ns\nfor _ in range({n}): read()"
COMPUTE = "for _ in range({n}): sum(range(100000))"
LOOP = "i=0; while [ $i -lt {n} ]; do sleep {seconds}; i=$((i+1)); done"
CROWD = """
import threading, time
lock = threading.Lock()
lock.acquire()
for _ in range({n}): threading.Thread(target=lock.acquire, daemon=True).start()
while True: time.sleep(0.1)
"""
START = 1_767_225_600_000_000_000
GO = """
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if os.Args[1] == "read" {
		for range 20_000_000 {
			_ = time.Now()
		}
		return
	}
	late := time.Duration(0)
	end := time.After(36 * time.Hour)
	for minutes := time.Duration(1); minutes <= 5; minutes++ {
		period := minutes * time.Minute
		go func() {
			due := time.Now().Add(period)
			for now := range time.Tick(period) {
				if now.Before(due) {
					fmt.Println("early")
				}
				late = max(late, now.Sub(due))
				due = due.Add(period)
			}
		}()
	}
	<-end
	fmt.Println("latest tick:", late)
}
"""


@dataclass(frozen=True)
class Cost:
    wall: float
    processor: float
    program: float  # the program's part of it
    jumps: int = 0


def used() -> tuple[float, float]:
    """Return the processor seconds of all so far, and those of programs alone."""
    ours, theirs = (
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return ours + theirs, theirs


def cost(began: float, before: tuple[float, float], jumps: int = 0) -> Cost:
    both, program = (now - then for now, then in zip(used(), before, strict=True))
    return Cost(time.perf_counter() - began, both, program, jumps)


def clocked(*command: str, seconds: int = 0) -> Cost:
    """Measure a program until it ends, or for so many seconds of the clock."""
    began, before = time.perf_counter(), used()
    until = START + seconds * 10**9 if seconds else None
    with Supervisor(start=START) as supervisor:
        program = supervisor.start(command)
        run(supervisor, program, until=until)
        assert seconds or program.returncode == 0, command
        jumps = supervisor.jumps
    return cost(began, before, jumps)


def plain(*command: str) -> Cost:
    began, before = time.perf_counter(), used()
    subprocess.run(command, check=True)
    return cost(began, before)


def python(code: str, **values: int) -> Sequence[str]:
    return PYTHON, "-I", "-S", "-c", code.format(**values)


def jumps(name: str, spent: Cost) -> None:
    each = spent.processor / spent.jumps
    print(
        f"{name}: {spent.jumps / spent.wall:,.0f} jumps/s, {each * 1e6:.0f} µs of processors each, "
        f"hence {1 / each:,.0f}/s on a processor of its own"
    )


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    jumps("one program that sleeps", clocked(*python(SLEEP, n=20_000)))

    with_clock = clocked(*python(READ, n=5_000_000)).program
    without = plain(*python(READ, n=5_000_000)).program
    print(
        f"a read from CPython: {with_clock / 5e-3:.0f} ns, without the clock {without / 5e-3:.0f}"
    )

    runs = [[measure(*python(COMPUTE, n=500)) for measure in (clocked, plain)] for _ in range(5)]
    slow, fast = (min(pair[which].program for pair in runs) for which in (0, 1))
    both = min(pair[0].processor for pair in runs)
    print(
        f"computing: {(slow / fast - 1) * 100:+.1f} % of {fast:.2f} s of a processor, "
        f"and {both - slow:.2f} s of the supervisor"
    )

    count = 8760
    loop = clocked("sh", "-c", LOOP.format(n=count, seconds=3600))
    native = plain("sh", "-c", LOOP.format(n=count // 10, seconds=0))
    print(
        f"{count:,} x sleep 3600 in sh: {loop.wall:.1f} s, {loop.processor:.1f} s of processors; "
        f"{count:,} x sleep 0 without the clock {native.wall * 10:.1f} s, "
        f"{native.processor * 10:.1f} s"
    )
    jumps("300 threads that wait, one that ticks", clocked(*python(CROWD, n=300), seconds=500))
    redis()
    go()


def redis() -> None:
    server = shutil.which("redis-server")
    if server is None:
        print("no redis-server here: its jumps are left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        options = ("--port", "55639", "--dir", folder, "--save", "", "--logfile", "log")
        jumps("redis, idle", clocked(server, *options, seconds=500))


def go() -> None:
    compiler = shutil.which("go")
    if compiler is None:
        print("no Go here: a read from Go and its tickers are left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "main.go"), str(Path(folder, "clock"))
        source.write_text(GO)
        environment = {**os.environ, "CGO_ENABLED": "0"}
        subprocess.run([compiler, "build", "-o", binary, source], check=True, env=environment)
        reads = [measure(binary, "read").program * 1e9 / 40e6 for measure in (clocked, plain)]
        print(f"a read from Go: {reads[0]:.1f} ns, without the clock {reads[1]:.1f}")
        jumps("five tickers of a static Go program, 36 hours", clocked(binary, "tick"))


if __name__ == "__main__":
    main()

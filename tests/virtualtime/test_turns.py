"""Programs that take turns: one after another, on one processor, the same each time."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from clocked import SECOND, START, needs_clock
from dralab.virtualtime import Supervisor

pytestmark = needs_clock


def taking_turns(*command):
    """Run a program until nothing happens any more; return its lines, and the seconds passed."""
    with tempfile.TemporaryFile() as out:
        with Supervisor(start=START, seed=1, gates=True) as supervisor:
            supervisor.start(command, stdout=out.fileno())
            supervisor.wait_idle()
            while supervisor.step():
                supervisor.wait_idle()
            passed = (supervisor.now - START) / SECOND
        out.seek(0)
        return out.read().decode().splitlines(), passed


def test_a_signal_ends_a_sleep_at_the_instant_at_which_it_is_sent():
    script = "sleep 1000 & {} $!; wait $!; echo $?"
    assert taking_turns("sh", "-c", script.format("kill")) == (["143"], 0)
    assert taking_turns("sh", "-c", script.format("kill -9")) == (["137"], 0)


def test_programs_find_one_processor_and_we_have_all_of_ours_again():
    ours = os.sched_getaffinity(0)
    assert taking_turns("nproc") == (["1"], 0)
    assert os.sched_getaffinity(0) == ours


THREADS = """
import threading, time
lock, order = threading.Condition(), []
def work(number):
    for _ in range(3):
        with lock:
            lock.wait(timeout=1 + number % 2)
        order.append(number)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(order)
"""


def test_threads_whose_waits_end_at_one_instant_go_on_in_one_order():
    found = {tuple(taking_turns(sys.executable, "-S", "-c", THREADS)[0]) for _ in range(3)}
    assert len(found) == 1


EPOLL = """
import os, select, threading, time
read, write = os.pipe()
def later():
    time.sleep({delay})
    os.write(write, b"x")
threading.Thread(target=later).start()
epoll = select.epoll()
epoll.register(read, select.EPOLLIN)
began = time.monotonic()
print(len(epoll.poll(60)), time.monotonic() - began)
"""


@pytest.mark.parametrize(("delay", "told"), [(10, "1 10.0"), (100, "0 60.0")])
def test_a_wait_of_epoll_ends_with_its_descriptors_or_its_time(delay, told):
    lines, passed = taking_turns(sys.executable, "-S", "-c", EPOLL.format(delay=delay))
    assert (lines, passed) == ([told], delay)


BLOCKING = """
package main

import (
	"fmt"
	"syscall"
	"time"
)

func main() {
	var ends [2]int
	syscall.Pipe(ends[:])
	began := time.Now()
	done := make(chan string)
	go func() {
		buffer := make([]byte, 1)
		syscall.Read(ends[0], buffer) // keeps its processor until the monitor takes it away
		done <- "read"
	}()
	go func() {
		own, _ := syscall.EpollCreate1(0)
		var more [2]int
		syscall.Pipe(more[:])
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(more[0])}
		syscall.EpollCtl(own, syscall.EPOLL_CTL_ADD, more[0], &event)
		go func() {
			time.Sleep(2 * time.Second)
			syscall.Write(more[1], []byte("x"))
		}()
		events := make([]syscall.EpollEvent, 1)
		syscall.EpollWait(own, events, -1)
		done <- "epoll"
	}()
	time.Sleep(time.Second)
	syscall.Write(ends[1], []byte("x"))
	fmt.Println(<-done, time.Since(began).Round(time.Second))
	fmt.Println(<-done, time.Since(began).Round(time.Second))
}
"""


@pytest.mark.conformance
@pytest.mark.skipif(not shutil.which("go"), reason="no Go here")
def test_a_go_program_goes_on_though_its_threads_block_in_calls_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "main.go").write_text(BLOCKING)
    program = str(tmp_path / "blocks")
    command = ["go", "build", "-o", program, str(tmp_path / "main.go")]
    subprocess.run(command, check=True, env={**os.environ, "CGO_ENABLED": "0"})
    monkeypatch.setenv("GOMAXPROCS", "1")
    assert taking_turns(program) == (["read 1s", "epoll 2s"], 2)

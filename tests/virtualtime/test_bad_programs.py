"""Programs that make it hard: each gets one clear line, and nothing is left running."""

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clocked import START, clocked, needs_clock, python
from dralab.virtualtime import ProgramStartError, Supervisor
from dralab.virtualtime.machine import this_machine
from dralab.virtualtime.pacing import RunEnding
from dralab.virtualtime.seccomp_filter import ERRNO, FilterRule, assemble

pytestmark = needs_clock


def test_a_program_that_does_not_exist():
    with (
        Supervisor(start=START) as supervisor,
        pytest.raises(ProgramStartError, match="cannot start /no/such: No such file or directory"),
    ):
        supervisor.start(["/no/such"])


def test_children_of_somebody_else_are_neither_waited_for_nor_ended():
    with subprocess.Popen(["sleep", "1000"]) as other:
        with Supervisor(start=START) as supervisor:
            supervisor.start(["sh", "-c", "sleep 1000 & sleep 1000"])
        assert other.poll() is None
        other.kill()


def test_exit_codes_and_signals_are_those_of_the_program():
    assert clocked(["sh", "-c", "exit 3"]).code == 3
    assert clocked(["sh", "-c", "kill -TERM $$"]).code == -signal.SIGTERM


@pytest.mark.parametrize("request_", [16, 0x4206], ids=["attach", "seize"])
def test_a_program_may_not_attach_to_its_tracer(request_):
    # Run in a process of its own: as root, both would wait for each other.
    code = f"""
from clocked import python
result = python('''
done = libc.ptrace({request_}, os.getppid(), None, None)
print(done, errno.errorcode.get(ctypes.get_errno()))
time.sleep(5)
print(round(elapsed()))
''')
print(result.code, result.lines)
"""
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "0 ['-1 EPERM', '5']\n"


def test_what_a_program_leaves_running_is_named_and_ended():
    result = clocked(["sh", "-c", "setsid sleep 1000 & exec setsid sleep 5"])
    assert result.left == ["sleep"]


def test_a_daemon_is_still_ours_after_both_its_forks():
    code = """
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(10**6)
"""
    result = python(code)
    assert len(result.left) >= 1


def test_a_program_that_is_killed_while_it_forks_leaves_no_child_stuck():
    code = """
for i in range(25):
    pid = os.fork()
    if not pid:
        while True:
            if not os.fork():
                time.sleep(3)
                os._exit(0)
    for _ in range(i * 500): pass
    os.kill(pid, 9)
    os.waitpid(pid, 0)
time.sleep(10)
"""
    result = python(code)
    assert (result.code, result.passed, result.left) == (0, 10, [])


def test_a_program_that_reads_the_clock_until_it_moves_finds_it_creeping():
    result = python("while time.monotonic() < began + 0.02: pass\nprint('through')")
    assert result.lines == ["through"]
    # By the processor time that it spends, which nothing bounds on a busy machine.
    assert result.passed >= 0.02
    assert "polls the clock" in result.notes[0]


def test_a_program_that_only_computes_takes_no_time():
    result = python("for _ in range(100): sum(range(20000))\nprint(elapsed())")
    assert (result.lines, result.notes) == (["0.0"], [])


def test_time_outs_that_cannot_be_virtual_are_named():
    code = """
print(call('recvmmsg', -1, None, 0, 0, spec(1)))
"""
    result = python(code)
    assert result.lines == ["EBADF"]
    assert result.notes[0].endswith("uses recvmmsg with a timeout, which runs in real time")


def test_io_uring_is_not_there():
    assert python("print(call('syscall', 425, 8, None))").lines == ["ENOSYS"]


def test_other_machines_are_refused_unless_allowed():
    code = """
s = socket.socket()
s.settimeout(5)
try: s.connect(('192.0.2.1', 80))
except OSError as e: print(errno.errorcode.get(e.errno, e))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for send in (lambda: u.sendto(b'x', ('192.0.2.1', 53)), lambda: u.sendmsg([b'x'], [], 0, ('192.0.2.1', 53))):
    try: send()
    except OSError as e: print(errno.errorcode[e.errno])
"""
    result = python(code)
    assert result.lines == ["ENETUNREACH"] * 3
    assert "was refused a connection to 192.0.2.1:80" in result.notes[0]


def test_the_clock_does_not_outrun_somebody_outside():
    # The server is not under the clock and takes real time: the client's 2 s must not fly past.
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""
s = socket.create_connection({server.getsockname()!r}, timeout=20)
print(s.recv(1))
"""
        child = subprocess.Popen(
            [sys.executable, "-c", ANSWER, str(server.fileno())], pass_fds=[server.fileno()]
        )
        result = python(code)
        child.wait()
    assert result.lines == ["b'!'"]
    assert result.passed < 20


ANSWER = """
import socket, sys, time
line, _ = socket.socket(fileno=int(sys.argv[1])).accept()
time.sleep(0.2)
line.sendall(b'!')
"""


@pytest.mark.skipif(not shutil.which("sleep"), reason="no sleep")
def test_nothing_outlives_a_supervisor_that_is_killed():
    code = f"""
import os, signal
from dralab.virtualtime import Supervisor
supervisor = Supervisor(start={START})
program = supervisor.start(['sh', '-c', 'sleep 1000 & sleep 1000'])
supervisor.wait_idle()
print(*supervisor.running, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 3
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it is gone, or it goes now
            ended = os.pidfd_open(pid)
            assert select.select([ended], [], [], 30)[0]
            os.close(ended)


def run_without(call, number, folder, *words):
    """Run `dralab simulate program` where the kernel refuses a system call."""
    machine = this_machine()
    assert machine is not None
    without = dataclasses.replace(machine, calls={call: number[machine.audit_arch]})
    code = assemble(without, [FilterRule(call, ERRNO | 1)])
    launch = Path(sys.modules["dralab.virtualtime"].__file__ or "").with_name("launch.py")
    ready, go = os.pipe()
    os.write(go, b"+")
    report = os.open(os.devnull, os.O_WRONLY)
    command = [sys.executable, "-I", str(launch), str(ready), str(report), code.hex(), "0"]
    command += ["-1", "0", "0", str(folder)]
    command += [sys.executable, "-m", "dralab", "simulate", "program", *words]
    done = subprocess.run(
        command, pass_fds=[ready, report], capture_output=True, text=True, check=False
    )
    for descriptor in (ready, go, report):
        os.close(descriptor)
    return done


def test_where_ptrace_is_refused_one_line_says_so(tmp_path):
    calls = {0xC000003E: 101, 0xC00000B7: 117}
    done = run_without("ptrace", calls, tmp_path, "--", "sleep", "1")
    assert done.returncode == 2
    assert (
        "the virtual clock is not available: ptrace is refused (Operation not permitted)"
        in done.stderr
    )
    assert "--scheduler external" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_where_no_namespace_can_be_made_a_note_says_that_process_numbers_differ(tmp_path):
    calls = {0xC000003E: 272, 0xC00000B7: 97}
    command = ["--seed", "1", "--", "sh", "-c", "sleep 1; echo $$"]
    done = run_without("unshare", calls, tmp_path, *command)
    assert done.returncode == 0
    assert int(done.stdout) > 2
    assert "process IDs differ from run to run" in done.stderr
    assert "(Operation not permitted)" in done.stderr


def test_an_end_comes_even_if_a_program_ignores_it():
    result = clocked(["sh", "-c", "trap '' TERM INT; while :; do sleep 60; done"], until=3600)
    assert (result.ending, result.passed) == (RunEnding.REACHED, 3600)

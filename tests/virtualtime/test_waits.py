"""Every wait with a time-out ends when it should, with what the kernel returns and writes."""

import pytest

from clocked import needs_clock, python

# name: code, and what it prints. The kernel's answers are those of the same code in real time.
CASES = {
    "time.sleep": ("time.sleep(3600); print(elapsed())", ["3600.0"]),
    "nanosleep": ("print(call('nanosleep', spec(7.5), None), elapsed())", ["0 7.5"]),
    "nanosleep of nothing": ("print(call('nanosleep', spec(0), None), elapsed())", ["0 0.0"]),
    "nanosleep refuses": (
        "print(call('nanosleep', (ctypes.c_long * 2)(0, 10**9), None), elapsed())",
        ["EINVAL 0.0"],
    ),
    "clock_nanosleep until an instant": (
        "t = spec(time.clock_gettime(0) + 100.5)\nprint(call('clock_nanosleep', 0, 1, t, None), elapsed())",
        ["0 100.5"],
    ),
    "clock_nanosleep until the past": (
        "print(call('clock_nanosleep', 1, 1, spec(1), None), elapsed())",
        ["0 0.0"],
    ),
    "an interrupted nanosleep says what is left": (
        "on(signal.SIGALRM)\nsignal.alarm(4)\nleft = spec(0)\n"
        "print(call('nanosleep', spec(10), left), seen(left), elapsed())",
        ["EINTR [6.0] 4.0"],
    ),
    "a stopped nanosleep goes on": (
        "pid = os.fork()\n"
        "if not pid:\n    print(call('nanosleep', spec(20), None), elapsed(), flush=True)\n    os._exit(0)\n"
        "time.sleep(1); os.kill(pid, signal.SIGSTOP); time.sleep(5); os.kill(pid, signal.SIGCONT)\n"
        "os.waitpid(pid, 0); print(elapsed())",
        ["0 20.0", "20.0"],
    ),
    "a sleep that was stopped for too long ends at once": (
        "pid = os.fork()\n"
        "if not pid:\n    print(call('nanosleep', spec(20), None), elapsed(), flush=True)\n    os._exit(0)\n"
        "time.sleep(1); os.kill(pid, signal.SIGSTOP); time.sleep(50); os.kill(pid, signal.SIGCONT)\n"
        "os.waitpid(pid, 0); print(elapsed())",
        ["0 51.0", "51.0"],
    ),
    "poll": (
        "r, w = os.pipe(); p = (ctypes.c_int * 2)(r, 1)\nprint(call('poll', p, 1, 1500), p[1], elapsed())",
        ["0 1 1.5"],
    ),
    "poll that something comes to": (
        "r, w = os.pipe(); threading.Timer(3, os.write, (w, b'x')).start()\n"
        "p = select.poll(); p.register(r, 1); print(p.poll(10000) == [(r, 1)], elapsed())",
        ["True 3.0"],
    ),
    "ppoll writes what is left": (
        "t = spec(2.5); s = ctypes.CDLL(None).syscall\n"
        "print(s(271, None, 0, t, None, 8), seen(t), elapsed())",
        ["0 [0.0] 2.5"],
    ),
    "select empties its sets": (
        "r, w = os.pipe(); s = (ctypes.c_ulong * 16)(); s[0] = 1 << r; t = val(9)\n"
        "print(call('select', r + 1, s, None, None, t), s[0], t[0], t[1], elapsed())",
        ["0 0 0 0 9.0"],
    ),
    "select says what is left": (
        "r, w = os.pipe(); threading.Timer(3, os.write, (w, b'x')).start()\n"
        "s = (ctypes.c_ulong * 16)(); s[0] = 1 << r; t = val(9)\n"
        "print(call('select', r + 1, s, None, None, t), s[0] == 1 << r, t[0], t[1], elapsed())",
        ["1 True 6 0 3.0"],
    ),
    "pselect": ("print(select.select([], [], [], 7.25), elapsed())", ["([], [], []) 7.25"]),
    "epoll": ("e = select.epoll(); print(e.poll(12.5), elapsed())", ["[] 12.5"]),
    "epoll_pwait2": (
        "e = select.epoll(); b = ctypes.create_string_buffer(64)\n"
        "print(libc.syscall(441, e.fileno(), b, 4, spec(0.000002), None, 8), elapsed())",
        ["0 2e-06"],
    ),
    "epoll interrupted by a handler": (
        "on(signal.SIGALRM); signal.alarm(2); e = select.epoll(); b = ctypes.create_string_buffer(64)\n"
        "print(call('epoll_wait', e.fileno(), b, 4, 5000), elapsed())",
        ["EINTR 2.0"],
    ),
    "futex": (
        "w = ctypes.c_int(0); print(call('syscall', 202, ctypes.byref(w), 0, 0, spec(5)), elapsed())",
        ["ETIMEDOUT 5.0"],
    ),
    "futex with another value": (
        "w = ctypes.c_int(1); print(call('syscall', 202, ctypes.byref(w), 0, 0, spec(5)), elapsed())",
        ["EAGAIN 0.0"],
    ),
    "futex until an instant": (
        "w = ctypes.c_int(0); t = spec(time.clock_gettime(1) + 6)\n"
        "print(call('syscall', 202, ctypes.byref(w), 9, 0, t, None, -1), elapsed())",
        ["ETIMEDOUT 6.0"],
    ),
    "futex until an instant of real time": (
        "w = ctypes.c_int(0); t = spec(time.clock_gettime(0) + 6)\n"
        "print(call('syscall', 202, ctypes.byref(w), 9 | 256, 0, t, None, -1), elapsed())",
        ["ETIMEDOUT 6.0"],
    ),
    "futex until the past": (
        "w = ctypes.c_int(0)\nprint(call('syscall', 202, ctypes.byref(w), 9, 0, spec(1), None, -1), elapsed())",
        ["ETIMEDOUT 0.0"],
    ),
    "a timed futex does not begin again after a handler": (
        "on(signal.SIGALRM); signal.alarm(2); w = ctypes.c_int(0)\n"
        "print(call('syscall', 202, ctypes.byref(w), 0, 0, spec(5)), elapsed())",
        ["EINTR 2.0"],
    ),
    "sigtimedwait": (
        "signal.pthread_sigmask(0, {10}); print(signal.sigtimedwait({10}, 3), elapsed())",
        ["None 3.0"],
    ),
    "semtimedop": (
        "s = libc.semget(0, 1, 0o600); op = struct.pack('hhh', 0, -1, 0)\n"
        "print(call('semtimedop', s, op, 1, spec(8)), elapsed()); libc.semctl(s, 0, 0)",
        ["EAGAIN 8.0"],
    ),
    "alarm": (
        "on(signal.SIGALRM, lambda *_: print('alarm', elapsed()))\n"
        "print(signal.alarm(5), signal.alarm(7)); signal.pause(); print(signal.alarm(0), elapsed())",
        ["0 5", "alarm 7.0", "0 7.0"],
    ),
    "setitimer": (
        "on(signal.SIGALRM, lambda *_: print('tick', elapsed()))\n"
        "signal.setitimer(0, 2.5, 1.5); print(signal.getitimer(0))\n"
        "signal.pause(); signal.pause(); print(signal.setitimer(0, 0), elapsed())",
        ["(2.5, 1.5)", "tick 2.5", "tick 4.0", "(1.5, 1.5) 4.0"],
    ),
    "timer_create": (
        "on(10, lambda *_: print('signal', elapsed()))\n"
        "event = struct.pack('Qii48x', 7, 10, 0); t = ctypes.c_void_p()\n"
        "print(call('timer_create', 1, event, ctypes.byref(t)))\n"
        "print(call('timer_settime', t, 0, spec(2, 3), None))\n"
        "signal.pause(); signal.pause(); now = spec(0, 0); call('timer_gettime', t, now); print(seen(now))\n"
        "call('timer_delete', t); time.sleep(10); print(elapsed())",
        ["0", "0", "signal 3.0", "signal 5.0", "[2.0, 2.0]", "15.0"],
    ),
    "the signal of a timer carries its value": (
        "signal.pthread_sigmask(0, {10}); event = struct.pack('Qii48x', 7, 10, 0); t = ctypes.c_void_p()\n"
        "call('timer_create', 0, event, ctypes.byref(t)); call('timer_settime', t, 0, spec(0, 3), None)\n"
        "info = (ctypes.c_int * 32)(); mask = ctypes.c_ulong(1 << 9)\n"
        "print(libc.syscall(128, ctypes.byref(mask), info, None, 8), info[2], info[6], elapsed())",
        ["10 -2 7 3.0"],
    ),
    "timerfd": (
        "f = libc.timerfd_create(1, 0); print(call('timerfd_settime', f, 0, spec(2, 3), None))\n"
        "e = select.epoll(); e.register(f, 1); e.poll(); print(elapsed())\n"
        "time.sleep(5); print(struct.unpack('Q', os.read(f, 8)), elapsed())\n"
        "print(struct.unpack('Q', os.read(f, 8)), elapsed())\n"
        "now = spec(0, 0); old = spec(0, 0); call('timerfd_gettime', f, now); print(seen(now))\n"
        "print(call('timerfd_settime', f, 0, spec(0, 0), old), seen(old)); print(select.select([f], [], [], 60)[0])",
        ["0", "3.0", "(3,) 8.0", "(1,) 9.0", "[2.0, 2.0]", "0 [2.0, 2.0]", "[]"],
    ),
    "timerfd until an instant of real time": (
        "f = libc.timerfd_create(0, 0); call('timerfd_settime', f, 1, spec(0, time.clock_gettime(0) + 90), None)\n"
        "os.read(f, 8); print(elapsed())",
        ["90.0"],
    ),
    "timerfd of a child that lives on": (
        "f = libc.timerfd_create(1, 0); call('timerfd_settime', f, 0, spec(0, 30), None)\n"
        "if os.fork():\n    time.sleep(1)\n    os.close(f); os.wait()\n"
        "else:\n    os.read(f, 8); print(elapsed())",
        ["30.0"],
    ),
    "threads": (
        "e = threading.Event(); print(e.wait(5), elapsed())\n"
        "threading.Timer(100, e.set).start(); print(e.wait(500), elapsed())",
        ["False 5.0", "True 105.0"],
    ),
    "raw reads of the clock": (
        "t = spec(0); time.sleep(5); libc.syscall(228, 1, t); print(round(seen(t)[0] - began, 6))\n"
        "t = val(0); libc.syscall(96, t, None); print(t[0] - int(time.time()), libc.syscall(201, None) - int(time.time()))",
        ["5.0", "0 0"],
    ),
    "the clock cannot be set": (
        "print(call('clock_settime', 0, spec(5)), call('settimeofday', val(5), None))",
        ["EPERM EPERM"],
    ),
    "processor time is real": ("sum(range(10**6)); print(time.process_time() > 0)", ["True"]),
}


@needs_clock
@pytest.mark.parametrize("name", CASES)
def test_a_wait_ends_as_the_kernel_would_end_it(name):
    code, expected = CASES[name]
    result = python(code)
    assert (result.lines, result.code) == (expected, 0)

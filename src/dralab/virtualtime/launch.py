"""Launcher of a supervised program: waits for the tracer, installs the filter, execs.

Run by path with `python -I -S`, hence without the rest of the package:
`launch.py READY REPORT FILTER UNBLOCK HOLD INIT SESSION DIRECTORY PROGRAM ARGUMENT…`.
The numbers of the program and of its namespace's init go to REPORT, a byte comes from READY; an
errno that stops us goes to REPORT as text. UNBLOCK is 1 where the supervisor has blocked SIGCHLD,
SESSION where the program should lead one.

HOLD is -1, or a pipe: then the program runs repeatably. Its memory has the same addresses each
time, a read of the processor's counter (rdtsc) is a fault that the supervisor answers, and its
processes have the same numbers: they are in a namespace that lasts until HOLD is closed, a new one
if INIT is 0, else that of process INIT.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
PR_SET_TSC, PR_TSC_SIGSEGV = 26, 2
ADDR_NO_RANDOMIZE = 0x0040000
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000


class SockFprog(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the program, or report why not."""
    ready, report = int(sys.argv[1]), int(sys.argv[2])
    code, unblock, hold = bytes.fromhex(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    init, session, directory, command = int(sys.argv[6]), sys.argv[7], sys.argv[8], sys.argv[9:]
    fcntl.fcntl(report, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    error = 0
    if hold >= 0:
        libc.personality(ADDR_NO_RANDOMIZE)
        try:
            init = enter(init) if init else new_namespace(hold)
        except OSError as refusal:
            init, error = 0, refusal.errno or 0
        os.close(hold)
        if init:
            fork_into_namespace(report, init)
    if not init:
        os.write(report, b"%d 0 %d" % (os.getpid(), error))
    if session == "1":
        os.setsid()
    os.read(ready, 1)
    os.close(ready)
    # Python ignores these; a program expects the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if unblock == "1":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    what = "seccomp"
    try:
        if hold >= 0:
            libc.prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)
        program = SockFprog(len(code) // 8, code)
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))
        what = "exec"
        os.chdir(directory)
        os.execvp(command[0], command)  # noqa: S606  # no shell: the command's own words
    except OSError as refusal:
        os.write(report, f"{what} {refusal.errno or 0}".encode())
    os._exit(127)


def check(result: int) -> None:
    """OSError if a call of the C library has failed."""
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def new_namespace(hold: int) -> int:
    """Give our children numbers of their own; return the namespace's init, as others see it."""
    own = (os.getuid(), os.getgid())
    if not own[0]:
        check(libc.unshare(CLONE_NEWPID | CLONE_NEWNS))
    else:  # which takes a namespace in which this user may do so
        check(libc.unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{own[0]} {own[0]} 1"),
            ("gid_map", f"{own[1]} {own[1]} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(text)
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    told, tell = os.pipe()
    init = os.fork()
    if not init:
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
        failed = libc.mount(b"proc", b"/proc", b"proc", flags, None)
        os.write(tell, b"%d" % (ctypes.get_errno() if failed else 0))
        # Orphans end without anybody asking for them, and a terminal's signals are not for us.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for stream in range(3):
            os.close(stream)
        os.closerange(3, hold)
        os.closerange(hold + 1, 1 << 10)
        os.read(hold, 1)
        os._exit(0)
    os.close(tell)
    error = int(os.read(told, 16) or b"5")
    os.close(told)
    if error:
        os.kill(init, signal.SIGKILL)
        os.waitpid(init, 0)
        libc.setns(os.open("/proc/self/ns/pid", os.O_RDONLY), CLONE_NEWPID)
        raise OSError(error, os.strerror(error))
    return init


def enter(init: int) -> int:
    """Give our children the namespace of process `init`; return that."""
    kinds = [("pid", CLONE_NEWPID), ("mnt", CLONE_NEWNS)]
    if os.getuid():
        kinds.insert(0, ("user", CLONE_NEWUSER))
    opened = [(os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY), kind) for name, kind in kinds]
    for namespace, kind in opened:
        check(libc.setns(namespace, kind))
        os.close(namespace)
    return init


def fork_into_namespace(report: int, init: int) -> None:
    """Return in a child, the program to be; stay as its parent, for init has to be waited for."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    if child:
        os.write(report, b"%d %d 0" % (child, init))
        os.closerange(0, 1 << 10)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                os._exit(0)
    signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    main()

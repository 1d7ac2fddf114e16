"""Launcher of a supervised program: waits for the tracer, installs the filter, execs.

Run by path with `python -I -S`, hence without the rest of the package:
`launch.py READY REPORT FILTER UNBLOCK REPEATABLE DIRECTORY PROGRAM ARGUMENT…`.
A byte goes to REPORT, one comes from READY; an errno that stops us goes to REPORT as text. UNBLOCK
is 1 where the supervisor has blocked SIGCHLD; REPEATABLE is 1 where memory should
have the same addresses each time.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
ADDR_NO_RANDOMIZE = 0x0040000


class SockFprog(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main() -> None:
    """Become the program, or report why not."""
    ready, report = int(sys.argv[1]), int(sys.argv[2])
    code, unblock, repeatable = bytes.fromhex(sys.argv[3]), sys.argv[4], sys.argv[5]
    directory, command = sys.argv[6], sys.argv[7:]
    fcntl.fcntl(report, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.write(report, b"+")  # our own exec is over: the next one is the program's
    os.read(ready, 1)
    os.close(ready)
    # Python ignores these; a program expects the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if unblock == "1":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    libc = ctypes.CDLL(None, use_errno=True)
    if repeatable == "1":
        libc.personality(ADDR_NO_RANDOMIZE)
    what = "seccomp"
    try:
        program = SockFprog(len(code) // 8, code)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
            PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
        ):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))  # noqa: TRY301  # reported in one place
        what = "exec"
        os.chdir(directory)
        os.execvp(command[0], command)  # noqa: S606  # no shell: the command's own words
    except OSError as error:
        os.write(report, f"{what} {error.errno or 0}".encode())
    os._exit(127)


if __name__ == "__main__":
    main()

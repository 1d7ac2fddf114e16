"""SO_RCVTIMEO and SO_SNDTIMEO: timeouts of sockets are instants of the clock."""

import pytest

from clocked import needs_clock, python

pytestmark = needs_clock

PAIR = """
RECEIVE, SEND = socket.SO_RCVTIMEO, socket.SO_SNDTIMEO
def limit(end, option, seconds): end.setsockopt(socket.SOL_SOCKET, option, bytes(val(seconds)))
def limited(end, option): return struct.unpack('ll', end.getsockopt(socket.SOL_SOCKET, option, 16))
def attempt(what, *arguments):
    try: return what(*arguments), elapsed()
    except OSError as error: return errno.errorcode[error.errno], elapsed()
one, other = socket.socketpair()
"""
# name: code, and what it prints. The kernel's answers are those of the same code in real time.
CASES = {
    "a receive ends": (
        "limit(one, RECEIVE, 5); print(*attempt(one.recv, 1)); print(*attempt(os.read, one.fileno(), 1))",
        ["EAGAIN 5.0", "EAGAIN 10.0"],
    ),
    "what comes earlier is received": (
        "limit(one, RECEIVE, 5); threading.Timer(3, other.send, (b'x',)).start()\n"
        "print(*attempt(one.recv, 1)); print(*attempt(one.recv, 1))",
        ["b'x' 3.0", "EAGAIN 8.0"],
    ),
    "a part of what was wanted counts": (
        "limit(one, RECEIVE, 5); other.send(b'x'); print(*attempt(one.recv, 9, socket.MSG_WAITALL))",
        ["b'x' 5.0"],
    ),
    "a send ends": (
        "limit(one, SEND, 7); one.setblocking(False)\n"
        "while attempt(one.send, bytes(4096))[0] != 'EAGAIN': pass\n"
        "os.set_blocking(one.fileno(), True); print(*attempt(os.write, one.fileno(), b'x'))",
        ["EAGAIN 7.0"],
    ),
    "an accept ends, and hands the timeout on": (
        "server = socket.create_server(('127.0.0.1', 0)); limit(server, RECEIVE, 4)\n"
        "print(*attempt(server.accept)); client = socket.create_connection(server.getsockname())\n"
        "server.settimeout(None); taken = server.accept()[0]; print(limited(taken, RECEIVE))\n"
        "print(*attempt(taken.recv, 1))",
        ["EAGAIN 4.0", "(4, 0)", "EAGAIN 8.0"],
    ),
    "it is told as it was set": (
        "print(limited(one, RECEIVE)); limit(one, RECEIVE, 2); print(limited(one, RECEIVE))\n"
        "limit(one, RECEIVE, 0); print(limited(one, RECEIVE), limited(one, SEND))",
        ["(0, 0)", "(2, 0)", "(0, 0) (0, 0)"],
    ),
    "it is refused as the kernel does": (
        "print(*attempt(one.setsockopt, socket.SOL_SOCKET, RECEIVE, b'1234'))\n"
        "print(*attempt(one.setsockopt, socket.SOL_SOCKET, RECEIVE, struct.pack('ll', 1, 10**6)))",
        ["EINVAL 0.0", "EDOM 0.0"],
    ),
    "it stays with a child": (
        "limit(one, RECEIVE, 5)\n"
        "if not os.fork(): print(*attempt(one.recv, 1), flush=True); os._exit(0)\n"
        "os.wait(); print(elapsed())",
        ["EAGAIN 5.0", "5.0"],
    ),
    "a signal ends it before, and the next wait is a new one": (
        "limit(one, RECEIVE, 5); on(signal.SIGALRM)\nsignal.alarm(3)\n"
        "print(call('recv', one.fileno(), bytes(1), 1, 0), elapsed())\n"
        "print(call('recv', one.fileno(), bytes(1), 1, 0), elapsed())",
        ["EINTR 3.0", "EAGAIN 8.0"],
    ),
    "beside a timer that ticks, the clock goes no further than its end": (
        "def tick():\n    while True: time.sleep(0.1)\n"
        "threading.Thread(target=tick, daemon=True).start()\n"
        "limit(one, RECEIVE, 5); print(*attempt(one.recv, 1))",
        ["EAGAIN 5.0"],
    ),
}


@pytest.mark.parametrize("seed", [None, 1], ids=["", "seeded"])
@pytest.mark.parametrize(("code", "lines"), CASES.values(), ids=CASES)
def test_a_timeout_of_a_socket_ends_on_the_clock(code, lines, seed):
    result = python(PAIR + code, seed=seed)
    assert (result.lines, result.notes) == (lines, [])

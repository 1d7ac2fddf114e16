"""Which processes listen on a port of this machine, from Linux' /proc.

Containers of the process runtime may share the machine's network, or their node's: a pod's ports
are those that its processes listen on.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

LONGEST: Final = 60  # characters of a command
LISTEN: Final = "0A"  # of the states in include/net/tcp_states.h
# Local addresses, as /proc/net/tcp and tcp6 spell them, at which connections to 127.0.0.1 arrive.
REACHED: Final = frozenset(
    {
        "0100007F",
        "00000000",
        "00000000000000000000000000000000",
        "0000000000000000FFFF00000100007F",
    }
)


def reaches_only(
    port: int, sessions: Collection[int], proc: Path = Path("/proc"), *, network: str = "net"
) -> bool | None:
    """Return whether only these sessions and their children listen on 127.0.0.1:`port`.

    None: this system does not tell. Also True if no process listens. `network` is the directory
    of a network's tables: of a process, to ask in its network namespace.
    """
    tables = proc / network
    if not (tables / "tcp").exists():
        return None
    listening = {inode for name in ("tcp", "tcp6") for inode in _at(port, tables / name)}
    if listening:
        for process in _members(sessions, proc):
            listening.difference_update(_sockets(process))
    return not listening


def holder_of(port: int, proc: Path = Path("/proc")) -> str:
    """Return the process that listens on 127.0.0.1:`port`; empty if it can't be seen from here."""
    listening = {inode for name in ("tcp", "tcp6") for inode in _at(port, proc / "net" / name)}
    if not listening:
        return ""
    for place in sorted(proc.glob("[0-9]*"), key=lambda place: int(place.name)):
        if listening & set(_sockets(place)):
            words = _command(place)
            return f"process {place.name}" + (f" ({words})" if words else "")
    return ""


def _command(process: Path) -> str:
    """Return the short command of a process, without its interpreter."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    while len(words) > 1 and (words[0].startswith("-") or "python" in Path(words[0]).name):
        words.pop(0)
    words[0] = Path(words[0]).name
    shown = " ".join(words).strip()
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def _at(port: int, table: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that listen at a port."""
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:
        return
    suffix = f"{port:04X}"
    for line in lines:
        _, local, _, state, *rest = line.split()
        address, _, at = local.partition(":")
        if state == LISTEN and at == suffix and address in REACHED:
            yield rest[5]


def _members(sessions: Collection[int], proc: Path) -> list[Path]:
    """Return the processes of some sessions, and those that they have started."""
    found, parents = {}, {}
    for place in proc.iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            # After the name, which may hold anything: state, parent, group, session.
            fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[int(place.name)], found[int(place.name)] = int(fields[1]), int(fields[3])

    def belongs(process: int) -> bool:
        seen = set()
        while process in parents and process not in seen:
            if found[process] in sessions:
                return True
            seen.add(process)
            process = parents[process]
        return False

    return [proc / str(process) for process in parents if belongs(process)]


def _sockets(process: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that a process holds."""
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]

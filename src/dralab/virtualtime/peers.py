"""The peers that programs name: on this machine, or outside."""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dralab.virtualtime.timed_calls import Arguments, ProgramMemory

CALLS: Final = frozenset({"connect", "sendto", "sendmsg", "sendmmsg"})
AF_INET, AF_INET6 = 2, 10
MESSAGES: Final = 16  # of one sendmmsg that are looked at


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that a program connects to."""

    network: bool  # by TCP or UDP, not by a socket in the file system
    local: bool
    address: str


def named(call: str, arguments: Arguments, memory: ProgramMemory) -> Iterator[Peer]:
    """Yield the peers that a call names."""
    if call == "connect":
        yield _peer(memory.read(arguments[1], min(arguments[2] & 0xFFFFFFFF, 28)))
    elif call == "sendto":
        yield _peer(memory.read(arguments[4], min(arguments[5] & 0xFFFFFFFF, 28)))
    else:
        # struct msghdr is 56 bytes; struct mmsghdr has a length behind it.
        count = 1 if call == "sendmsg" else min(arguments[2] & 0xFFFFFFFF, MESSAGES)
        for index in range(count):
            header = memory.read(arguments[1] + 64 * index, 12)
            if len(header) == 12:
                address, size = struct.unpack("<QI", header)
                if address:
                    yield _peer(memory.read(address, min(size, 28)))


def _peer(data: bytes) -> Peer:
    family = int.from_bytes(data[:2], "little")
    port = int.from_bytes(data[2:4], "big")
    if family == AF_INET and len(data) >= 8:
        four = ipaddress.IPv4Address(data[4:8])
        local = four.is_loopback or four.is_unspecified
        return Peer(network=True, local=local, address=f"{four}:{port}")
    if family == AF_INET6 and len(data) >= 24:
        six = ipaddress.IPv6Address(data[8:24])
        inner = six.ipv4_mapped or six
        local = inner.is_loopback or inner.is_unspecified
        host = f"[{six}]" if six.ipv4_mapped is None else str(six.ipv4_mapped)
        return Peer(network=True, local=local, address=f"{host}:{port}")
    return Peer(network=False, local=True, address="")

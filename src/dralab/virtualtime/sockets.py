"""The connections of programs: whether bytes are in transit, and which peers are outside.

The kernel's sock_diag tells of every TCP connection of this machine what it has sent and received.
Both ends of a connection inside the machine are there, so what one has sent and the other has not
received yet is on its way, however late acknowledgements are.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
TCPDIAG_GETSOCK: Final = 18
DUMP: Final = 0x301  # NLM_F_REQUEST, NLM_F_DUMP
DONE, ERROR = 3, 2
INFO: Final = 2  # INET_DIAG_INFO: struct tcp_info
INFO_BIT: Final = 1 << (INFO - 1)
TCP, UDP = 6, 17
ESTABLISHED, SYN_SENT, SYN_RECEIVED, LISTEN = 1, 2, 3, 10
HEADER: Final = struct.Struct("<IHHII")
REQUEST: Final = struct.Struct("<BBBxI48x")
OLD_REQUEST: Final = struct.Struct("<BBBB48xII")
ANSWER: Final = struct.Struct("<BBxx4s32s12x12xII")  # family, state, ports, addresses, …, inode
NOT_SENT, RECEIVED, SENT, SENT_AGAIN = 144, 128, 200, 208  # in struct tcp_info

READS_NO_MORE: Final = 1 << 64
STATES: Final = 0xFFF & ~(1 << 6 | 1 << 7)  # all but TIME_WAIT and CLOSE
PORTS, INODE = slice(4, 8), slice(68, 72)  # in struct inet_diag_msg

QUEUES: Final = slice(9 * 13, 9 * 15 - 1)  # the columns of softnet_stat that count packets
EMPTY: Final = b"00000000 00000000"

End = bytes  # family, address and port


@dataclass(frozen=True, slots=True)
class TracedSocket:
    """One end of a connection."""

    protocol: int
    state: int
    here: End
    there: End
    inode: int
    sent: int
    received: int
    waiting: bool  # it has bytes that were not sent yet

    @property
    def port(self) -> bytes:
        """Its own port."""
        return self.here[-2:]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic between programs, at one instant."""

    in_flight: bool
    outside: bool
    apart: bool  # no program has a peer


class Loopback:
    """Packets that wait to be handed to their sockets, of this machine's programs.

    What is sent on the loopback waits in a queue of its processor, if only for microseconds. Linux
    says how long these queues are since 5.10, those of other programs' packets included.
    """

    def __init__(self) -> None:
        self._file = -1

    def in_transit(self) -> bool | None:
        """Return whether some packet is on its way; None where the kernel does not say."""
        try:
            if self._file < 0:
                self._file = os.open("/proc/net/softnet_stat", os.O_RDONLY | os.O_CLOEXEC)
            rows = os.pread(self._file, 1 << 16, 0).splitlines()
        except OSError:
            return None
        if not rows or len(rows[0]) < QUEUES.stop:
            return None
        return any(row[QUEUES] != EMPTY for row in rows)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Connections:
    """The connections of the programs under a clock."""

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        self._seen: frozenset[bytes] = frozenset()
        self._ours: frozenset[int] = frozenset()
        self._known_peers: frozenset[int] = frozenset()

    def traffic(self, processes: Iterable[int], peers: Iterable[int] = ()) -> Traffic:
        """Look at the connections of these processes; those to `peers` are not outside."""
        records = [(protocol, record) for protocol in (TCP, UDP) for record in self._dump(protocol)]
        inodes = frozenset([record[INODE] for _, record in records])
        if inodes != self._seen:
            self._seen, self._ours = inodes, _inodes(processes)
            self._known_peers = _inodes(peers)
        # Other programs of the machine may have thousands: only what can be an end of ours is read.
        ports = {record[PORTS] for _, record in records if _number(record[INODE]) in self._ours}
        turned = {pair[2:] + pair[:2] for pair in ports}
        found = [
            _read(protocol, record)
            for protocol, record in records
            if record[PORTS] in ports or record[PORTS] in turned
        ]
        ours = [end for end in found if end.inode in self._ours]
        listening = {end.port for end in ours if end.state == LISTEN}
        ends = {(end.protocol, end.here, end.there): end for end in found}
        in_flight = outside = False
        apart = True
        for end in ours:
            if end.state == LISTEN or not any(end.there[-2:]):
                continue
            apart = False
            if end.state in {SYN_SENT, SYN_RECEIVED}:
                in_flight = True
            peer = ends.get((end.protocol, end.there, end.here))
            if end.protocol == TCP and peer is not None:
                in_flight = in_flight or _on_the_way(end, peer) or _on_the_way(peer, end)
            if end.state == ESTABLISHED and not self._known(peer, end, listening):
                outside = True
        return Traffic(in_flight, outside, apart)

    def _known(self, peer: TracedSocket | None, end: TracedSocket, listening: set[bytes]) -> bool:
        if peer is None:
            # The other end of an unconnected UDP socket, or of another machine.
            return end.protocol == UDP and end.there[-2:] in listening
        if not peer.inode:
            return peer.port in listening
        return peer.inode in self._ours or peer.inode in self._known_peers

    def close(self) -> None:
        """Close the socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _dump(self, protocol: int) -> Iterator[bytes]:
        if protocol == TCP:  # one walk through the kernel's table for both families
            yield from self._answers(
                TCPDIAG_GETSOCK, OLD_REQUEST.pack(0, 0, 0, INFO_BIT, STATES, 0)
            )
            return
        for family in (socket.AF_INET, socket.AF_INET6):
            yield from self._answers(
                SOCK_DIAG_BY_FAMILY, REQUEST.pack(family, protocol, 0, 1 << ESTABLISHED)
            )

    def _answers(self, kind: int, body: bytes) -> Iterator[bytes]:
        if self._netlink is None:
            self._netlink = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
            )
            self._netlink.bind((0, 0))
        self._netlink.send(HEADER.pack(HEADER.size + len(body), kind, DUMP, 1, 0) + body)
        while True:
            data = self._netlink.recv(1 << 17)
            at = 0
            while at + HEADER.size <= len(data):
                size, kind, *_ = HEADER.unpack_from(data, at)
                if kind in {DONE, ERROR}:
                    return
                yield data[at + HEADER.size : at + size]
                at += (size + 3) & ~3


def _on_the_way(sender: TracedSocket, receiver: TracedSocket) -> bool:
    """Whether bytes are in transit from one end to the other."""
    return sender.waiting or sender.sent > receiver.received


def _read(protocol: int, data: bytes) -> TracedSocket:
    family, state, ports, addresses, _, inode = ANSWER.unpack_from(data)
    size = 4 if family == socket.AF_INET else 16
    # An IPv4 connection of an IPv6 socket is the peer of an IPv4 socket.
    own, other = (_plain(addresses[i : i + size]) for i in (0, 16))
    # Nothing is said of a connection whose program has closed it: it reads no more.
    sent, received, waiting = 0, READS_NO_MORE, False
    at = ANSWER.size
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("<HH", data, at)
        if kind == INFO and length - 4 >= SENT_AGAIN + 8:
            info = data[at + 4 : at + length]
            (received,) = struct.unpack_from("<Q", info, RECEIVED)
            total, again = struct.unpack_from("<QQ", info, SENT)
            sent = total - again
            waiting = struct.unpack_from("<I", info, NOT_SENT)[0] > 0
        at += max((length + 3) & ~3, 4)
    return TracedSocket(
        protocol, state, own + ports[:2], other + ports[2:], inode, sent, received, waiting
    )


def _number(word: bytes) -> int:
    return int.from_bytes(word, "little")


def _plain(address: bytes) -> bytes:
    return address[12:] if address.startswith(bytes(10) + b"\xff\xff") else address


def _inodes(processes: Iterable[int]) -> frozenset[int]:
    found = set()
    for pid in processes:
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                links = [Path(entry.path) for entry in entries]
        except OSError:
            continue
        for link in links:
            try:
                name = str(link.readlink())
            except OSError:
                continue
            if name.startswith("socket:["):
                found.add(int(name[8:-1]))
    return frozenset(found)

"""A listening socket of a process that has no descriptor left."""

import asyncio
import errno
import logging
import os
import resource
import socket
import sys

import pytest

from dralab.apiserver.http.connections.listening import Newcomers, address, listen, reserved


@pytest.fixture
def listener():
    found = listen("127.0.0.1", 0)
    yield found
    found.close()


@pytest.fixture
def clients(listener):
    found = [socket.create_connection(address(listener)) for _ in range(2)]
    yield found
    for each in found:
        each.close()


def refuse(listener, times):
    """Accept so many connections, all of which are too many."""

    async def main():
        for _ in range(times):
            with pytest.raises(ConnectionAbortedError):
                listener.accept()

    asyncio.run(main())


def test_connections_above_the_cap_are_closed_with_one_line(listener, clients, caplog, monkeypatch):
    lowest = os.dup(0)
    os.close(lowest)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (lowest, lowest))
    with caplog.at_level(logging.WARNING):
        refuse(listener, 2)
    assert [each.recv(1) for each in clients] == [b"", b""]
    assert caplog.text.count("new connections are closed at once") == 1


def test_without_any_descriptor_a_connection_is_taken_by_the_spare_one(
    listener, clients, monkeypatch
):
    real, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def accept(this):
        if failures:
            raise failures.pop()
        return real(this)

    monkeypatch.setattr(socket.socket, "accept", accept)
    refuse(listener, 1)
    assert clients[0].recv(1) == b""
    found, _ = listener.accept()
    found.close()


def test_the_backlog_stays_long_however_few_are_accepted_at_once(listener):
    # The kernel tells of a listening socket how long its backlog may be (tcp_info, tcpi_sacked).
    def backlog():
        found = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        return int.from_bytes(found[28:32], sys.byteorder)

    long = backlog()
    listener.listen(1)
    assert backlog() == long > 1


def test_a_new_connection_takes_the_place_of_the_oldest_that_asked_nothing(listener, monkeypatch):
    clients, servers = [], []
    for _ in range(3):
        clients.append(socket.create_connection(address(listener)))
        servers.append(listener.accept()[0])
    listener.newcomers.admitted(servers[0].fileno())
    clients.append(socket.create_connection(address(listener)))
    limit = servers[-1].fileno()  # so many are not in use, but for the last client's
    while limit - reserved(limit) < clients[-1].fileno() + 1:
        limit += 1
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert clients[1].recv(1) == b"", "the oldest, but for the one that has asked"
    for client in (clients[0], clients[2]):
        client.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    servers[1].close()  # as the loop does then
    servers.append(listener.accept()[0])
    for end in (*clients, *servers):
        end.close()


def test_the_host_with_most_connections_loses_one():
    newcomers, pairs = Newcomers(), [socket.socketpair() for _ in range(4)]
    for (one, _), host in zip(pairs, ("a", "b", "b", "c"), strict=True):
        newcomers.add(one, host)
    assert newcomers.end_oldest() is pairs[1][0]
    assert pairs[1][1].recv(1) == b""
    pairs[0][0].close()
    pairs[2][0].close()
    ended = []
    newcomers.connected(pairs[3][0].fileno(), lambda: ended.append("c"))
    assert newcomers.end_oldest() is pairs[3][0], "those that are closed need not be"
    assert ended == ["c"]
    assert newcomers.end_oldest() is None
    for end in [end for pair in pairs for end in pair]:
        end.close()

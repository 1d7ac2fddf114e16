"""Who listens at a port, as /proc tells: here a directory that looks like it."""

import os
import socket

import pytest

from dralab.node.listening_ports import holder_of, reaches_only

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid timeout inode"
LISTEN, ESTABLISHED = "0A", "01"


class Proc:
    def __init__(self, path):
        self.path = path
        (path / "net").mkdir()
        self.tables = {"tcp": [HEAD], "tcp6": [HEAD]}
        self.write()

    def write(self):
        for name, lines in self.tables.items():
            (self.path / "net" / name).write_text("\n".join(lines) + "\n")

    def socket(self, inode, address="0100007F", port=80, state=LISTEN):
        table = "tcp" if len(address) == 8 else "tcp6"
        line = f" 0: {address}:{port:04X} 00000000:0000 {state} 0:0 00:0 0 1000 0 {inode} 1"
        self.tables[table].append(line)
        self.write()

    def process(self, number, parent, session, *inodes, name="a) b"):
        place = self.path / str(number)
        (place / "fd").mkdir(parents=True)
        (place / "stat").write_text(f"{number} ({name}) S {parent} {number} {session} 0 -1")
        for descriptor, inode in enumerate(inodes):
            (place / "fd" / str(descriptor)).symlink_to(f"socket:[{inode}]")


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


@pytest.mark.parametrize(
    "address", ["0100007F", "00000000", "0" * 32, "0000000000000000FFFF00000100007F"]
)
def test_a_process_of_the_session_reaches_its_own_port_and_no_other_does(proc, address):
    proc.socket(1, address)
    proc.process(10, 1, 10, 1)
    assert reaches_only(80, {10}, proc.path)
    assert not reaches_only(80, {11}, proc.path)
    assert not reaches_only(80, set(), proc.path)


def test_a_child_in_a_session_of_its_own_belongs_to_its_parent(proc):
    proc.socket(1)
    proc.process(10, 1, 10)
    proc.process(11, 10, 11)
    proc.process(12, 11, 12, 1)
    assert reaches_only(80, {10}, proc.path)


def test_a_port_that_is_shared_with_another_program_is_not_the_pods(proc):
    proc.socket(1)
    proc.socket(2, "00000000")
    proc.process(10, 1, 10, 1)
    proc.process(20, 1, 20, 2)
    assert not reaches_only(80, {10}, proc.path)


def test_connections_other_addresses_and_other_ports_do_not_count(proc):
    proc.socket(1, state=ESTABLISHED)
    proc.socket(2, "0200007F")
    proc.socket(3, port=81)
    assert reaches_only(80, {10}, proc.path), "nobody listens: connecting will say so"


def test_a_system_that_does_not_tell_is_said_to_be_so(tmp_path):
    assert reaches_only(80, {10}, tmp_path) is None


def test_this_machine_tells_of_this_process():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if (found := reaches_only(port, {os.getsid(0)})) is None:
            pytest.skip("this system has no /proc/net/tcp")
        assert found
        assert not reaches_only(port, {1 << 30})


def test_who_holds_a_port_is_named_by_its_command(proc):
    proc.socket("7")
    proc.socket("8", port=81)
    for number, inode, command in (
        (30, "8", ["ruby", "x"]),
        (4, "7", ["/usr/bin/python3.11", "-I", "/opt/bin/dralab", "up", "--nodes", "2"]),
    ):
        proc.process(number, 1, number, inode)
        (proc.path / str(number) / "cmdline").write_text("\0".join([*command, ""]))
    assert holder_of(80, proc.path) == "process 4 (dralab up --nodes 2)"
    assert holder_of(81, proc.path) == "process 30 (ruby x)"
    assert holder_of(82, proc.path) == ""
    (proc.path / "4" / "cmdline").write_text("a" * 100)
    assert holder_of(80, proc.path) == f"process 4 ({'a' * 60}…)"
    (proc.path / "4" / "cmdline").unlink()
    assert holder_of(80, proc.path) == "process 4"

"""gRPC over HTTP/2 with a peer that does as it is told; `test_etcd` has a real one."""

import socket
import struct
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("hpack")

from hpack import Encoder

from dralab.apiserver.storage.etcd import client as etcd_client
from dralab.apiserver.storage.etcd import http2
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.http2 import DEADLINE_EXCEEDED, UNAVAILABLE, Connection, Stream

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
LAST = 1  # of a stream
WHOLE = 4  # header fields
STARTED = ((":status", "200"), ("content-type", "application/grpc"))


def fields(*pairs):
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode(pairs)


def message(body):
    return struct.pack(">BI", 0, len(body)) + body


class Peer:
    """A member and a connection to it."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.connection = Connection(f"127.0.0.1:{listener.getsockname()[1]}", None)
            self.socket, _ = listener.accept()
        self.socket.settimeout(60)
        self.ended = []
        self.connection.pump()
        assert self._read(24).endswith(b"SM\r\n\r\n")
        self.settings, self.window = self.frame(), self.frame()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close("over")
        self.connection.socket.close()
        self.socket.close()

    def call(self, body=b"question", **options):
        stream = Stream(self.ended.append, **options)
        self.connection.call("/etcdserverpb.KV/Range", body, stream)
        return stream

    def send(self, *frames):
        sent = b""
        for kind, flags, number, payload in frames:
            size = struct.pack(">I", len(payload))[1:]
            sent += size + struct.pack(">BBI", kind, flags, number) + payload
        self.write(sent)

    def write(self, sent):
        """Send some bytes, and let the connection take them in."""
        self.socket.sendall(sent)
        self.pump(len(sent))

    def pump(self, size=0):
        there = self.connection.socket
        there.setblocking(True)
        while len(there.recv(size or 1, socket.MSG_PEEK)) < size:
            pass  # it is on its way
        there.setblocking(False)
        self.connection.pump()

    def frame(self):
        """Return the next frame that was sent: kind, flags, number and payload."""
        head = self._read(9)
        return (*struct.unpack(">BBI", head[3:]), self._read(int.from_bytes(head[:3])))

    def answer(self, number, *bodies, status="0", details=""):
        trailers = [("grpc-status", status), *([("grpc-message", details)] if details else [])]
        self.send(
            (HEADERS, WHOLE, number, fields(*STARTED)),
            *((DATA, 0, number, message(body)) for body in bodies),
            (HEADERS, WHOLE | LAST, number, fields(*trailers)),
        )

    def _read(self, size):
        found = b""
        while len(found) < size:
            found += self.socket.recv(size - len(found))
        return found


@pytest.fixture
def peer():
    with Peer() as found:
        yield found


def test_a_call_is_answered(peer):
    assert peer.settings[:3] == (SETTINGS, 0, 0)
    stream = peer.call()
    assert peer.frame()[:3] == (HEADERS, WHOLE, 1)
    assert peer.frame() == (DATA, LAST, 1, message(b"question"))
    peer.answer(1, b"answer")
    assert peer.ended == [stream]
    assert (stream.code, list(stream.messages)) == (0, [b"answer"])
    peer.call()
    assert [peer.frame()[2] for _ in range(2)] == [3, 3], "the next call on the same connection"


def test_header_fields_say_what_etcd_wants_to_know(peer):
    peer.call(until=1)
    sent = http2._decoded(peer.frame()[3])
    assert sent[":path"] == "/etcdserverpb.KV/Range"
    assert (sent["hasleader"], sent["grpc-timeout"], sent["te"]) == ("true", "2S", "trailers")


def test_an_answer_may_come_in_any_parts(peer):
    stream = peer.call()
    body = message(b"first") + message(b"") + message(b"x" * 40_000)
    peer.send((HEADERS, WHOLE, 1, fields(*STARTED)))
    for at in range(0, len(body), 7_001):
        peer.send((DATA, 0, 1, body[at : at + 7_001]))
    block = fields(("grpc-status", "0"), ("x", "y"))
    peer.send((HEADERS, LAST, 1, block[:3]), (CONTINUATION, WHOLE, 1, block[3:]))
    assert stream.code == 0
    assert list(stream.messages) == [b"first", b"", b"x" * 40_000]


def test_an_error_has_its_code_and_text(peer):
    stream = peer.call()
    peer.send((HEADERS, WHOLE | LAST, 1, fields(*STARTED, ("grpc-status", "11"),
                                                ("grpc-message", "was%20compacted"))))  # fmt: skip
    assert (stream.code, stream.details) == (11, "was compacted")
    stream = peer.call()
    peer.answer(3, status="8", details="no space")
    assert (stream.code, stream.details) == (8, "no space")


def test_no_more_is_sent_than_the_member_takes(peer):
    peer.call(b"x" * 100_000)
    peer.frame()
    sent = [peer.frame() for _ in range(4)]
    assert [len(frame[3]) for frame in sent] == [16_384] * 3 + [16_383]
    peer.send((WINDOW, 0, 0, struct.pack(">I", 50_000)))
    peer.socket.settimeout(0)
    with pytest.raises(BlockingIOError):
        peer.frame()  # the stream has a window of its own
    peer.socket.settimeout(60)
    peer.send((SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535 + 20_000)))
    frames = [peer.frame() for _ in range(3)]
    assert [len(frame[3]) for frame in frames if frame[0] == DATA] == [16_384, 3_616]
    assert (SETTINGS, 1, 0, b"") in frames, "they are acknowledged"
    peer.send((WINDOW, 0, 1, struct.pack(">I", 50_000)))
    frame = peer.frame()
    assert (frame[1], len(frame[3])) == (LAST, 100_005 - 65_535 - 20_000)


def test_a_member_may_go_on_sending(peer, monkeypatch):
    monkeypatch.setattr(http2, "RENEWED", 10_000)
    stream = peer.call()
    peer.frame(), peer.frame()
    peer.send((HEADERS, WHOLE, 1, fields(*STARTED)), (DATA, 0, 1, message(b"x" * 12_000)))
    more = struct.pack(">I", 12_005)
    assert [peer.frame(), peer.frame()] == [(WINDOW, 0, 0, more), (WINDOW, 0, 1, more)]
    assert len(stream.messages[0]) == 12_000


def test_a_call_that_takes_too_long_is_cancelled(peer):
    stream, other = peer.call(until=1), peer.call()
    for _ in range(4):
        peer.frame()
    peer.connection.look()
    assert peer.frame() == (RESET, 0, 1, struct.pack(">I", 8))
    assert (stream.code, other.code) == (DEADLINE_EXCEEDED, -1)
    peer.answer(1, b"late")
    assert (peer.ended, peer.connection.lost) == ([stream], "")


def test_a_quiet_member_is_asked_and_left_if_it_does_not_answer(peer, monkeypatch):
    stream = peer.call()
    peer.frame(), peer.frame()
    monkeypatch.setattr(http2, "IDLE", -1)
    peer.connection.look()
    assert peer.frame() == (PING, 0, 0, bytes(8))
    peer.send((PING, 1, 0, bytes(8)))
    monkeypatch.setattr(http2, "SILENT", -1)
    peer.connection.look()
    assert (peer.frame()[0], peer.connection.lost) == (PING, "")
    peer.connection.look()
    assert (stream.code, stream.details) == (UNAVAILABLE, "no answer to a ping")


def test_a_ping_is_answered(peer):
    peer.send((PING, 0, 0, b"12345678"))
    assert peer.frame() == (PING, 1, 0, b"12345678")


def test_a_call_that_the_member_breaks_off_can_be_tried_again(peer):
    stream = peer.call()
    peer.send((RESET, 0, 1, struct.pack(">I", 7)))
    assert (stream.code, peer.connection.lost) == (UNAVAILABLE, "")


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([(GOAWAY, 0, 0, bytes(8))], "the member ends the connection"),
        ([(DATA, 8, 1, b"\0")], "a frame with padding"),
        ([(HEADERS, WHOLE, 1, fields(*STARTED)), (DATA, 0, 1, b"\1\0\0\0\1x")], "compresses"),
        ([(HEADERS, WHOLE, 1, b"\xff\xff")], ""),
        ([(HEADERS, WHOLE, 1, fields(("grpc-status", "x")))], "invalid literal"),
        ([(WINDOW, 0, 0, b"x")], "requires"),
    ],
)
def test_a_peer_that_is_no_member_ends_all_calls(peer, frames, why):
    streams = peer.call(), peer.call()
    peer.send(*frames)
    assert peer.connection.lost
    assert why in peer.connection.lost
    assert [stream.code for stream in streams] == [UNAVAILABLE] * 2
    assert peer.call().code == UNAVAILABLE, "nor is another one begun"


@pytest.mark.parametrize("frame", [(1 << 20) + 1, 0xFFFFFF])
def test_a_frame_may_not_be_too_large(peer, frame):
    peer.write(struct.pack(">I", frame)[1:] + bytes(6))
    assert "too large" in peer.connection.lost


def test_what_is_not_grpc_is_told(peer):
    stream = peer.call()
    peer.send((HEADERS, WHOLE, 1, fields((":status", "404"), ("content-type", "text/html"))))
    assert stream.code == UNAVAILABLE
    assert "404" in stream.details


def test_a_member_that_goes_ends_all_calls_once(peer):
    stream = peer.call()
    peer.socket.shutdown(socket.SHUT_RDWR)
    peer.pump()
    peer.connection.close("over")
    assert (peer.ended, stream.code) == ([stream], UNAVAILABLE)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.lists(st.sampled_from(range(10)), max_size=4))
def test_no_bytes_make_a_connection_raise(garbage, kinds):
    with Peer() as peer:
        stream = peer.call()
        sent = b"".join(
            struct.pack(">I", len(garbage))[1:] + struct.pack(">BBI", kind, kind, 1) + garbage
            for kind in kinds
        )
        peer.write(sent + garbage + b"\0")
        peer.connection.close("over")
        assert peer.ended == [stream]


@pytest.mark.parametrize("answers", [(), (b"\xff\xff",)])
def test_an_answer_that_is_none_counts_as_lost(peer, answers):
    told = []
    member = SimpleNamespace(connection=peer.connection)
    address = SimpleNamespace(endpoints=("m",))
    client = SimpleNamespace(
        current=0, members=[member], closed=threading.Event(), address=address, leave=lambda _: None
    )
    call = etcd_client._EtcdCall(client, "range", pb.RangeRequest(), told.append)
    call._spent = etcd_client.PATIENCE
    call.attempt()
    peer.answer(1, *answers)
    assert "is not one of etcd's" in str(told)

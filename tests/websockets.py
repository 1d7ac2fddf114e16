"""Plain clients of WebSockets: frames as they are, and what kubectl and the Python clients make."""

import base64
import json
import os
import socket

from wsproto.frame_protocol import FrameProtocol, Opcode

from dralab.node.spdy import Frame, FrameReader, FrameType, FrameWriter

CLOSED = object()


def frame(opcode, payload, *, final=True):
    """Return a client's frame."""
    protocol = FrameProtocol(client=True, extensions=[])
    return protocol._serialize_frame(opcode, payload, fin=final)


class WebSocket:
    """The smallest of clients. `status` and `headers` are those of the answer to the upgrade."""

    def __init__(self, host, path, protocol="v5.channel.k8s.io", *, context=None, **headers):
        address, _, port = host.rpartition(":")
        self.socket = socket.create_connection((address, int(port)), timeout=150)
        if context is not None:
            self.socket = context.wrap_socket(self.socket)
        self.file = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {headers.pop('Host', host)}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value

    def refusal(self):
        """Return the message of a refused upgrade."""
        return json.loads(self.file.read())["message"]

    def send(self, payload, opcode=Opcode.BINARY):
        self.socket.sendall(frame(opcode, payload))

    def receive(self):
        """Return the next message, or CLOSED."""
        opcode, payload = self.receive_frame()
        return CLOSED if opcode == Opcode.CLOSE else payload

    def receive_frame(self):
        """Return the opcode and the payload of the next frame."""
        first, size = self.file.read(2)
        if size == 126:
            size = int.from_bytes(self.file.read(2), "big")
        elif size == 127:
            size = int.from_bytes(self.file.read(8), "big")
        return first & 0x0F, self.file.read(size)

    def all(self):
        """Return the bytes of each channel, up to the close."""
        found = {}
        while (message := self.receive()) is not CLOSED:
            found.setdefault(message[0], []).append(message[1:])
        return {channel: b"".join(parts) for channel, parts in found.items()}

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Tunnel:
    """kubectl's side of port-forward."""

    def __init__(self, websocket):
        self.websocket = websocket
        self.reader, self.writer = FrameReader(), FrameWriter()
        self.frames = []
        self.next = 1

    def open(self, port, request="0"):
        """Open the two streams of a connection; return their numbers: error, data."""
        numbers = []
        for kind in ("error", "data"):
            headers = {"streamtype": kind, "port": str(port), "requestid": request}
            self.say(Frame(type=FrameType.SYN_STREAM, stream=self.next, headers=headers))
            numbers.append(self.next)
            self.next += 2
        return numbers

    def say(self, frame):
        self.websocket.send(self.writer.frame(frame))

    def data(self, stream, payload, *, fin=False):
        self.say(Frame(type=FrameType.DATA, stream=stream, payload=payload, fin=fin))

    def hear(self):
        """Return the next frame."""
        while not self.frames:
            message = self.websocket.receive()
            assert message is not CLOSED
            self.frames += self.reader.feed(message)
        return self.frames.pop(0)

    def until_over(self, *streams):
        """Return what came on streams, once the other side has ended them."""
        found, left = dict.fromkeys(streams, b""), set(streams)
        while left:
            heard = self.hear()
            if heard.type is FrameType.DATA and heard.stream in left:
                found[heard.stream] += heard.payload
                if heard.fin:
                    left.discard(heard.stream)
        return [found[stream] for stream in streams]

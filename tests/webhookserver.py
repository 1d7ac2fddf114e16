"""A webhook: an HTTPS server in a thread, whose answers a test says."""

import base64
import http.server
import ipaddress
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from authorities import Authority
from dralab.kernel.clock import SECOND, WallClock

NAMES = ("localhost", "hook.default.svc")


@cache
def authority():
    from datetime import UTC, datetime

    return Authority("webhook-ca", datetime.fromtimestamp(WallClock().now() / SECOND, UTC))


@cache
def server_pem():
    """Certificate and key of all webhooks, made once."""
    ca = authority()
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    names = [x509.DNSName(name) for name in NAMES]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = (
        ca._builder(subject, key, 30)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM) + key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


@cache
def context():
    """The TLS of all webhooks, made once."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "pem"
        file.write_bytes(server_pem())
        found.load_cert_chain(file)
    return found


class WebhookServer:
    """Answers POSTs by `answers[path](request)`, a function from a request to a response.

    `asked` keeps what came. A function may return bytes, or (status, bytes, *headers), or an
    iterator of pieces instead.
    """

    def __init__(self):
        self.answers, self.asked, self.raw = {}, [], []
        self.headers = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                owner.raw.append((self.command, self.path, data))
                owner.headers.append(dict(self.headers))
                body = json.loads(data) if data else {}
                request = body.get("request") or {}
                owner.asked.append((path, request))
                answer = owner.answers.get(path)
                found = (404, b"") if answer is None else answer(request)
                if isinstance(found, dict):
                    found = json.dumps(
                        {
                            "apiVersion": body.get("apiVersion"),
                            "kind": body.get("kind"),
                            "response": {"uid": request.get("uid"), **found},
                        }
                    ).encode()
                if isinstance(found, Iterator):
                    self.stream(found)
                    return
                status, content, *more = found if isinstance(found, tuple) else (200, found)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                for name, value in more:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def __getattr__(self, name):
                if name.startswith("do_"):  # any method
                    return self.answer
                raise AttributeError(name)

            def stream(self, pieces):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass

            def finish_request(self, request, client_address):
                with context().wrap_socket(request, server_side=True) as tls:
                    self.RequestHandlerClass(tls, client_address, self)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.ca = base64.b64encode(authority().pem).decode()
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def client(self, path):
        """Return a clientConfig for a path."""
        return {"url": f"https://localhost:{self.port}{path}", "caBundle": self.ca}

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def patch(*operations):
    """Return a response that patches the object."""
    text = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


def allow(_request):
    return {"allowed": True}


__all__ = ["WebhookServer", "allow", "patch"]

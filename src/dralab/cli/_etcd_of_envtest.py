"""What envtest starts as etcd: it says that it is healthy. The server keeps its objects itself.

Run as a file, without the package and without site-packages: it is there in some hundredths of a
second.
"""

import contextlib
import socket
import sys

ANSWER = b'{"health":"true","reason":""}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
LONGEST = 5.0  # seconds for a client to send its request
FLAG = "--listen-client-urls="


def main(arguments: list[str]) -> int:
    """Answer every request at the address of --listen-client-urls, until it is ended."""
    urls = [each.removeprefix(FLAG) for each in arguments if each.startswith(FLAG)]
    if not urls:
        sys.stderr.write(f"this stand-in for etcd needs {FLAG}http://HOST:PORT\n")
        return 2
    host, _, port = urls[-1].split(",")[0].partition("//")[2].rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.create_server((host.strip("[]"), int(port)), family=family) as server:
        while True:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.settimeout(LONGEST)
                client.recv(65536)
                client.sendall(HEAD % len(ANSWER) + b"Connection: close\r\n\r\n" + ANSWER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A server as a process of its own, to be killed, and a plain client for it."""

import http.client
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from dralab.runtime.kubeconfig import ClusterAccess


class ServerProcess:
    """`dralab apiserver`, or another command that serves, on a free port, without TLS."""

    def __init__(self, data: Path | str, *options: str, command: str = "apiserver") -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "dralab", command,
                "--plain", "--listen", "127.0.0.1:0", "--data", str(data), *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready: http://"), ready
        self.url = ready.removeprefix("ready: ").strip()
        self.host = self.url.removeprefix("http://")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def resident(self) -> int:
        """Return the resident memory in MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
        raise AssertionError("the server is gone")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Connection:
    """One keep-alive connection."""

    def __init__(
        self, host: str, timeout: float = 150, access: ClusterAccess | None = None
    ) -> None:
        self.headers = {}
        if access is None:
            self.http = http.client.HTTPConnection(host, timeout=timeout)
            return
        trusting = ssl.create_default_context(cadata=access.ca)
        self.http = http.client.HTTPSConnection(host, timeout=timeout, context=trusting)
        self.headers = {"Authorization": f"Bearer {access.token}"}

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind} if data is not None else {}
        self.http.request(method, path, data, self.headers | headers)
        answer = self.http.getresponse()
        return answer.status, json.loads(answer.read())

    def stream(self, path: str) -> http.client.HTTPResponse:
        self.http.request("GET", path, headers=self.headers)
        return self.http.getresponse()

    def close(self) -> None:
        self.http.close()

"""Probes: check whether a container is started, alive and ready."""

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from dralab.node.containers import Container, ContainerStartError
from dralab.node.exec_commands import TIMED_OUT

MOST_SAID: Final = 1024  # of a probe's output, in events


def probe(container: Container, spec: Mapping[str, Any]) -> str | None:
    """Return what a probe finds wrong now, None if all is well.

    A command is run in the container. What a simulated container would serve over the network
    is believed to be there; a real one is asked on this machine.
    """
    command = (spec.get("exec") or {}).get("command")
    timeout = max(1, spec.get("timeoutSeconds", 1))
    if command:
        said: list[bytes] = []
        try:
            code = container.run(command, lambda _, data: said.append(data), timeout=timeout)
        except ContainerStartError as error:
            return str(error) if getattr(container, "real", False) else None
        if code == TIMED_OUT:
            return f"command timed out after {timeout}s"
        text = b"".join(said).decode(errors="replace").strip()
        return text[:MOST_SAID] if code else None
    if not getattr(container, "real", False):
        return None
    get = spec.get("httpGet")
    port = (get or spec.get("tcpSocket") or spec.get("grpc") or {}).get("port")
    if not isinstance(port, int):
        return None
    if get is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout).close()
        except OSError as error:
            return f"dial tcp 127.0.0.1:{port}: {error}"
        return None
    url = f"http://127.0.0.1:{port}/{get.get('path', '/').lstrip('/')}"
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            status = int(answer.status)
    except urllib.error.HTTPError as error:
        status = error.code
    except OSError as error:
        return f'Get "{url}": {error}'
    return None if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"

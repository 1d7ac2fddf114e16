"""Probes: what asks a container whether it is well."""

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from dralab.node.containers import Container, StartError


def probe(container: Container, spec: Mapping[str, Any], host: str) -> bool:
    """Return whether a probe succeeds now.

    A command is run in the container. What a pretended container would serve over the network
    is believed to be there; a real one is asked on this machine.
    """
    command = (spec.get("exec") or {}).get("command")
    if command:
        try:
            timeout = float(max(1, spec.get("timeoutSeconds", 1)))
            return container.run(command, lambda _channel, _data: None, timeout=timeout) == 0
        except StartError:
            return not getattr(container, "real", False)
    if not getattr(container, "real", False):
        return True
    del host
    timeout = max(1, spec.get("timeoutSeconds", 1))
    get = spec.get("httpGet")
    port = (get or spec.get("tcpSocket") or spec.get("grpc") or {}).get("port")
    if not isinstance(port, int):
        return True
    if get is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout).close()
        except OSError:
            return False
        return True
    url = f"http://127.0.0.1:{port}/{get.get('path', '/').lstrip('/')}"
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return 200 <= int(answer.status) < 400
    except (OSError, urllib.error.HTTPError):
        return False

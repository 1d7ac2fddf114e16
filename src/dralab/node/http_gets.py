"""The HTTP requests of probes and hooks: `httpGet`.

Source: kubelet 1.36, `pkg/probe/http`. A certificate is not verified, and no redirect is followed.
"""

import ssl
from typing import Final
from urllib.parse import quote

from dralab.kernel.http_client import HttpConnections, UnansweredError, until
from dralab.node.network.sandbox import Sandbox
from dralab.values.json_types import JsonObject

PATH: Final = "!$%&'()*+,-./:;=?@[]_~"  # what a path and its query may have as they are
AGENT: Final = "kube-probe/1.36"


def http_status(sandbox: Sandbox, get: JsonObject, port: int, timeout: float) -> int:
    """Return the status of what a port of a pod answers. UnansweredError.

    A pod's author chooses port and path, and a pod the answer: no proxy of the environment is
    asked. Another `host` is asked from the pod's node alone, where nodes have a network.
    """
    host = (get.get("host") or "") if sandbox.node is not None else ""
    headers = {"User-Agent": AGENT, "Accept": "*/*"}
    for each in get.get("httpHeaders") or ():
        headers = {k: v for k, v in headers.items() if k.lower() != each["name"].lower()}
        if each["value"] or each["name"].lower() != "accept":
            headers[each["name"]] = each["value"]
    secure = get.get("scheme") == "HTTPS"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if secure else None
    if tls is not None:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    where = host or sandbox.address
    where = f"[{where}]" if ":" in where else where
    try:
        connections = HttpConnections(
            f"{'https' if secure else 'http'}://{where}:{port}",
            tls=tls,
            dial=lambda _, seconds: sandbox.connect(port, seconds, host),
        )
    except ValueError as error:
        raise UnansweredError(str(error), step="request") from error
    path = "/" + quote((get.get("path") or "/").lstrip("/"), safe=PATH)
    answer = connections.open("GET", path, headers.items(), timeout=None, left=until(timeout))
    answer.close()
    return answer.status

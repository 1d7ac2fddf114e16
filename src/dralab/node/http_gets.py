"""The HTTP requests of probes and hooks: `httpGet`.

Source: kubelet 1.36, `pkg/probe/http`. A certificate is not verified, and no redirect is followed.
"""

import ssl
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import quote

from dralab.node.network.sandbox import Sandbox
from dralab.values.json_types import JsonObject

PATH: Final = "!$%&'()*+,-./:;=?@[]_~"  # what a path and its query may have as they are
AGENT: Final = "kube-probe/1.36"


def http_status(sandbox: Sandbox, get: JsonObject, port: int, timeout: float) -> int:
    """Return the status of what a port of a pod answers. OSError, HTTPException.

    A pod's author chooses port and path, and a pod the answer: no proxy of the environment is
    asked. Another `host` is asked from the pod's node alone, where nodes have a network.
    """
    host = (get.get("host") or "") if sandbox.node is not None else ""
    headers = {"User-Agent": AGENT, "Accept": "*/*"}
    for each in get.get("httpHeaders") or ():
        headers = {k: v for k, v in headers.items() if k.lower() != each["name"].lower()}
        if each["value"] or each["name"].lower() != "accept":
            headers[each["name"]] = each["value"]
    line = HTTPConnection(host or sandbox.address, port, timeout=timeout)
    try:
        line.sock = sandbox.connect(port, timeout, host)
        if get.get("scheme") == "HTTPS":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            line.sock = context.wrap_socket(line.sock)
        path = "/" + quote((get.get("path") or "/").lstrip("/"), safe=PATH)
        line.request("GET", path, headers=headers)
        return line.getresponse().status
    except ValueError as error:  # a header that HTTP cannot carry
        raise HTTPException(str(error)) from error
    finally:
        line.close()

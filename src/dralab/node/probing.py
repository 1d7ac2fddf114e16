"""Probes: check whether a container is started, alive and ready."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.contracts import wire
from dralab.kernel.extras import MissingExtraError
from dralab.kernel.http_client import UnansweredError
from dralab.node.containers import Container, ContainerStartError
from dralab.node.exec_commands import TIMED_OUT
from dralab.node.http_gets import http_status
from dralab.node.network.sandbox import ON_MACHINE, Sandbox
from dralab.values.json_types import JsonObject

MOST_SAID: Final = 1024  # of a probe's output, in events
SERVING: Final = 1
STATUSES: Final = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


def probe(container: Container, spec: Mapping[str, Any]) -> str | None:
    """Run a probe and return the reason for its failure, None if it succeeds.

    A command is run in the container. What a simulated container would serve over the network
    is believed to be there; a real one is asked on this machine, or at its pod's address.
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
    sandbox: Sandbox = getattr(container, "sandbox", ON_MACHINE)
    if "grpc" in spec:
        where = f"{sandbox.address}:{port}"
        return _health(where, spec["grpc"].get("service") or "", timeout)
    if get is None:
        host = spec["tcpSocket"].get("host") or ""
        try:
            sandbox.connect(port, timeout, host).close()
        except OSError as error:
            return f"dial tcp {sandbox.address_of(host)}:{port}: {error}"
        return None
    try:
        status = http_status(sandbox, get, port, timeout)
    except UnansweredError as error:
        scheme, host = (get.get("scheme") or "http").lower(), get.get("host") or ""
        path = (get.get("path") or "/").lstrip("/")
        return f'Get "{scheme}://{sandbox.address_of(host)}:{port}/{path}": {error}'
    return None if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def with_port(container: JsonObject, kind: str) -> JsonObject:
    """Return a probe of a container, with the number of a port that it gives by name."""
    spec: JsonObject = container[kind]
    for how in ("httpGet", "tcpSocket"):
        port = (spec.get(how) or {}).get("port")
        if isinstance(port, str) and (number := port_number(container, port)) is not None:
            return {**spec, how: {**spec[how], "port": number}}
    return spec


def port_number(container: JsonObject, port: object) -> int | None:
    """Return a port of a container by its number or name; None if it has none of that name."""
    if isinstance(port, int):
        return port
    ports = container.get("ports") or ()
    return next((each["containerPort"] for each in ports if each.get("name") == port), None)


def _health(where: str, service: str, timeout: float) -> str | None:
    """Ask a server's `grpc.health.v1.Health`; texts of kubelet 1.36, `pkg/probe/grpc`."""
    try:
        grpc = wire.grpc()
    except MissingExtraError as error:
        return str(error)
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""  # HealthCheckRequest.service
    with grpc.insecure_channel(where) as channel:
        try:
            answer = channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=timeout)
        except grpc.RpcError as error:
            code = error.code()
            if code is grpc.StatusCode.UNIMPLEMENTED:
                return "error: this server does not implement the grpc health protocol"
            return f'timeout: failed to connect service "{where}": {error.details()}'
    status = answer[1] if answer[:1] == b"\x08" else 0  # HealthCheckResponse.status
    if status == SERVING:
        return None
    word = STATUSES.get(status, str(status))
    return f'service unhealthy (responded with "{word}")'

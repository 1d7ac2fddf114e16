"""The Service variables of a container.

Source: kubelet 1.36, `pkg/kubelet/envvars` and `getServiceEnvVarMap`. The API server itself,
`KUBERNETES_SERVICE_HOST`, is left to the runtime: it knows by which address a pod reaches it.
"""

from collections.abc import Iterable
from typing import Final

from dralab.objects.metadata import key_of
from dralab.values.json_types import JsonDict, JsonObject

MASTER: Final = ("default", "kubernetes")


def service_variables(services: Iterable[JsonDict], pod: JsonDict) -> dict[str, str]:
    """Return the variables for a pod's containers; none if it has `enableServiceLinks: false`."""
    if pod["spec"].get("enableServiceLinks") is False:
        return {}
    found: dict[str, str] = {}
    namespace = pod["metadata"].get("namespace", "")
    for service in services:
        key = key_of(service)
        if key.namespace != namespace or key == MASTER:
            continue
        address = service["spec"].get("clusterIP")
        ports = service["spec"].get("ports") or ()
        if ports and address not in {None, "", "None"}:
            found |= _of(key.name, address, ports)
    return found


def _of(service: str, address: str, ports: Iterable[JsonObject]) -> dict[str, str]:
    prefix = _name(service)
    found = {f"{prefix}_SERVICE_HOST": address}
    for port in ports:
        number, protocol = str(port["port"]), port.get("protocol") or "TCP"
        where = f"[{address}]:{number}" if ":" in address else f"{address}:{number}"
        url = f"{protocol.lower()}://{where}"
        found.setdefault(f"{prefix}_SERVICE_PORT", number)
        if port.get("name"):
            found[f"{prefix}_SERVICE_PORT_{_name(port['name'])}"] = number
        found.setdefault(f"{prefix}_PORT", url)
        each = f"{prefix}_PORT_{number}_{protocol.upper()}"
        found[each] = url
        found[f"{each}_PROTO"] = protocol.lower()
        found[f"{each}_PORT"] = number
        found[f"{each}_ADDR"] = address
    return found


def _name(text: str) -> str:
    return text.replace("-", "_").upper()

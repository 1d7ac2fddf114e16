"""The status of a Node as its kubelet writes it: capacity, conditions, addresses, versions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api.releases import MIXED, version_of
from dralab.node.containers import ContainerRuntime
from dralab.objects.conditions import with_condition as replaced
from dralab.objects.metadata import status_of
from dralab.values.json_types import JsonDict, JsonObject

VERSION: Final = version_of(MIXED)
# Type, status, reason, message.
CONDITIONS: Final = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def address_of(status: JsonObject) -> str:
    """Return the address that the status of a node states; empty if it states none."""
    listed = status.get("addresses") or ()
    return next((each["address"] for each in listed if each["type"] == "InternalIP"), "")


def lacks_amounts(status: JsonObject) -> bool:
    """Whether a node does not offer all its resources to pods yet.

    Users add resources of their own to the capacity; the kubelet offers them (`MachineInfo`).
    """
    return not (status.get("capacity") or {}).keys() <= (status.get("allocatable") or {}).keys()


def allocatable_of(status: JsonObject, amounts: Mapping[str, str]) -> dict[str, str]:
    """Return what a node offers to pods; amounts that its status states already stay."""
    stated = (status.get("capacity") or {}, status.get("allocatable") or {})
    return {**amounts, **stated[0], **stated[1]}


def status_of_node(
    node: JsonDict,
    amounts: Mapping[str, str],
    runtime: ContainerRuntime,
    *,
    ip: str,
    port: int | None,
    now: str,
    version: str = VERSION,
    declared: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the status of a node that is ready; amounts that it states already stay.

    `declared` are the features that it has and a scheduler has to know of. `port` is that of its
    endpoint; None if it has none. `now` is a time as the API writes it.
    """
    name, held = node["metadata"]["name"], status_of(node)
    listed = held.get("conditions") or []
    for type_, status, reason, message in CONDITIONS:
        condition = {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
        }
        listed = replaced(listed, condition, now=now)
    if port is not None:
        held = {**held, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    return {
        **held,
        **({"declaredFeatures": sorted(declared)} if declared else {}),
        "capacity": {**amounts, **(held.get("capacity") or {})},
        "allocatable": allocatable_of(held, amounts),
        "conditions": listed,
        "addresses": [
            {"type": "InternalIP", "address": ip},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "machineID": name,
            "systemUUID": name,
            "bootID": "",
            "kernelVersion": "6.6.0",
            "osImage": "dralab",
            "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
            "kubeletVersion": version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }

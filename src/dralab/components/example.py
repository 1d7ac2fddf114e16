"""The example: two nodes with devices, and pods that ask for them.

`load` creates it in a cluster; `is_empty` returns whether the cluster is still empty; `placements`
returns where the pods were placed.
"""

from collections.abc import Callable, Iterator
from importlib.resources import files

from dralab.api.kinds import Kinds
from dralab.api.status import ignoring
from dralab.api.yaml_documents import documents
from dralab.objects.claims import consumers_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import NamespacedName, key_of
from dralab.runtime.client import Client, Resource, amend
from dralab.runtime.resources import CLAIMS, NODES, PODS, SLICES, resource_of
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class GrantedDevice:
    """One device that a pod got."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """The result for a pod: a node and devices, or why it has none."""

    pod: str
    node: str
    devices: tuple[GrantedDevice, ...]
    why: str


def text() -> str:
    """Return the manifests, as YAML."""
    return files("dralab.components").joinpath("data/example.yaml").read_text(encoding="utf-8")


def objects() -> Iterator[JsonDict]:
    """Yield the objects, in an order in which they can be created."""
    for document in documents(text()):
        if document.value is not None:
            yield document.value


def is_empty(client: Client) -> bool:
    """Return whether a cluster has no nodes, no pods and no devices yet."""
    return not any(client.list(resource).items for resource in (NODES, PODS, SLICES))


def load(client: Client) -> list[NamespacedName]:
    """Create the example's objects, except existing ones. Return the keys of its pods."""
    kinds = Kinds.standard()
    pods = []
    for obj in objects():
        resource = resource_of(kinds, obj)
        with ignoring("AlreadyExists"):
            create(client, resource, obj)
        if resource == PODS:
            pods.append(key_of(obj))
    return pods


def create(client: Client, resource: Resource, obj: JsonDict) -> None:
    """Create an object with its status. ApiError."""
    made = client.create(resource, obj, obj["metadata"].get("namespace", ""))
    if "status" in obj:
        # Servers differ in which kinds may bring their status along; controllers may be faster.
        amend(client, resource, made, _with_status(obj["status"]), subresource="status")


def settled(client: Client, pods: list[NamespacedName]) -> bool:
    """Return whether every pod has a node or a reason why it has none."""
    return all(
        pod["spec"].get("nodeName") or condition_of(pod, "PodScheduled") is not None
        for pod in (client.get(PODS, key.name, key.namespace) for key in pods)
    )


def placements(client: Client, pods: list[NamespacedName]) -> list[PodOutcome]:
    """Return the results for the pods, in their order."""
    claims = client.list(CLAIMS).items
    found = []
    for key in pods:
        pod = client.get(PODS, key.name, key.namespace)
        uid = pod["metadata"]["uid"]
        given = [
            GrantedDevice(
                claim["metadata"]["name"],
                item["request"],
                item["driver"],
                item["pool"],
                item["device"],
            )
            for claim in claims
            if any(user["uid"] == uid for user in consumers_of(claim))
            for item in claim["status"]["allocation"]["devices"].get("results", ())
        ]
        scheduled = condition_of(pod, "PodScheduled") or {}
        why = "" if pod["spec"].get("nodeName") else scheduled.get("message", "")
        found.append(PodOutcome(key.name, pod["spec"].get("nodeName", ""), tuple(given), why))
    return found


def _with_status(status: JsonDict) -> Callable[[JsonDict], bool]:
    def change(obj: JsonDict) -> bool:
        if obj.get("status") == status:
            return False
        obj["status"] = status
        return True

    return change

"""Copies of a node of a model, as a new machine of the kind would bring."""

from collections.abc import Iterable, Iterator
from typing import Final

from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.nodes import HOSTNAME
from dralab.scheduling.model import ClusterModel
from dralab.values.json_types import JsonDict, JsonObject

NEW: Final = "new-"


def copies(model: ClusterModel, name: str, count: int) -> Iterator[JsonDict]:
    """Yield the objects of copies of a node: labels, taints, amounts and devices."""
    node = model.node(name) or {}
    mine = [item for item in model.slices.values() if spec_of(item).get("nodeName") == name]
    for number in range(1, count + 1):
        own = f"{NEW}{number}-{name}"
        while model.node(own) is not None:
            own = f"{NEW}{own}"
        yield from renamed(node, mine, own)


def renamed(node: JsonObject, slices: Iterable[JsonObject], own: str) -> Iterator[JsonDict]:
    """Yield a node under another name, and its slices as those of that node."""
    spec = {**spec_of(node), "unschedulable": False}
    metadata = {"name": own, "labels": {**labels_of(node), HOSTNAME: own}}
    yield {**node, "metadata": metadata, "spec": spec}
    for item in slices:
        pool = item["spec"]["pool"]
        yield {
            **item,
            "metadata": {"name": f"{own}-{item['metadata']['name']}"},
            "spec": {
                **item["spec"],
                "nodeName": own,
                "pool": {**pool, "name": f"{own}-{pool['name']}"},
            },
        }


def put(model: ClusterModel, item: JsonDict) -> None:
    """Add a node, a slice or a class to a model."""
    if item["kind"] == "Node":
        model.put_node(model.objects.with_room(item))
    elif item["kind"] == "ResourceSlice":
        model.put_slice(item["metadata"]["name"], item)
    else:
        model.put_class(item)

"""The fake driver's devices as named resources, and what the scheduler chose of them.

Source: fake-dra-driver v0.1.3: names in lower case, attributes `uuid` and `model`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dralab.drivers.fake.demo import model_of
from dralab.prototypes.classic.fake import device_of
from dralab.values.json_types import JsonDict


def resources(node: str, names: Iterable[str]) -> list[JsonDict]:
    """Return what a node offers: one model with an instance for each device."""
    model = model_of(node)
    instances = [
        {
            "name": name.lower(),
            "attributes": [{"name": "uuid", "string": name}, {"name": "model", "string": model}],
        }
        for name in names
    ]
    return [{"namedResources": {"instances": instances}}]


def chosen(handle: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the devices of a structured handle in the form of a NodeAllocationState.

    >>> chosen({"results": [{"namedResources": {"name": "fake-1"}}]})
    [{'uuid': 'FAKE-1'}]
    """
    split = (handle.get("vendorClaimParameters") or {}).get("split", 0)
    part = {"split": split} if split > 0 else {}
    return [
        {"uuid": device_of(result["namedResources"]["name"]), **part}
        for result in handle.get("results") or ()
    ]

"""The JSON schema of case files of allocations: what `conformance.judged` reads."""

from typing import Final

from dralab.allocation.problem import GATES
from dralab.values.json_schema import (
    FLAG,
    TEXT,
    JsonSchema,
    about,
    document,
    listing,
    mapping,
    one_of_fields,
)

_OBJECT: Final[JsonSchema] = {"type": "object"}
_DEVICE: Final[JsonSchema] = {
    "type": "object",
    "required": ["driver", "pool", "device"],
    "properties": {"driver": TEXT, "pool": TEXT, "device": TEXT},
}


def schema() -> JsonSchema:
    """Return the JSON schema of case files."""
    names = ", ".join(GATES)
    expected = mapping(
        {"feasible": FLAG, "devices": about("Driver, pool and device of each result.", {})},
        ["feasible"],
    )
    shared = {**_DEVICE, "required": [*_DEVICE["required"], "shareID"]}
    case: JsonSchema = {
        "type": "object",
        "required": ["name", "claims", "classes", "slices", "node"],
        "properties": {
            "name": TEXT,
            "claims": about("ResourceClaims of resource.k8s.io/v1.", listing(_OBJECT)),
            "classes": about("DeviceClasses.", listing(_OBJECT)),
            "slices": about("ResourceSlices.", listing(_OBJECT)),
            "node": about("The Node to allocate on.", _OBJECT),
            "features": about(
                f"The gates that are on; default: all. Known: {names}.", listing(TEXT)
            ),
            "allocatedDevices": listing(_DEVICE),
            "allocatedSharedDeviceIDs": listing(shared),
            "allocatedCapacity": listing(_DEVICE),
            "expectResults": about("The allocations, to the letter.", {}),
            "expectErrorSubstring": {"type": ["string", "null"]},
            "expectFeasible": about("Whether any valid allocation is found.", FLAG),
            "expectChosenSubrequests": {"type": ["object", "null"]},
            "expect": expected,
        },
        "anyOf": one_of_fields("expectResults", "expectFeasible", "expect"),
    }
    return document(
        "Cases of dralab conformance allocator",
        "Claims, devices and the expected allocation: `dralab conformance allocator FILE`.",
        listing(case),
    )

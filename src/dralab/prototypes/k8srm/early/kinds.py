"""The files of stages K0 and K1: a list of nodes, and the claim of one pod.

Fields: k8srm-prototype 183b121 and 27183b1, `pkg/api`. Spellings of both stages are in the schemas.
"""

from typing import Final

from dralab.prototypes.k8srm.early.capacities import ACCESS_MODES
from dralab.prototypes.k8srm.kinds import ATTRIBUTE, CONFIG, CONSTRAINTS, MATCH
from dralab.prototypes.schema_words import (
    NOT_EMPTY,
    Schema,
    array,
    boolean,
    integer,
    mapping,
    quantity,
    struct,
    text,
)

ATTRIBUTES: Final = array(ATTRIBUTE)
NAME: Final = text() | NOT_EMPTY
HOLDERS: Final = {f"{mode[0].lower()}{mode[1:]}": integer(minimum=0) for mode in ACCESS_MODES}
CAPACITY: Final = struct(
    {
        "name": NAME,
        "topologies": array(
            struct(
                {
                    "name": NAME,
                    "type": NAME,
                    "groupInResource": boolean("Stage K0."),
                    "groupInDevice": boolean("Stage K1."),
                },
                ("name", "type"),
            )
        ),
        "counter": struct({"capacity": integer(minimum=0)}, ("capacity",)),
        "quantity": struct({"capacity": quantity()}, ("capacity",)),
        "block": struct({"size": quantity(), "capacity": quantity()}, ("size", "capacity")),
        "accessMode": struct({f"allow{mode}": boolean() for mode in ACCESS_MODES[:3]} | HOLDERS),
    },
    ("name",),
)
DEVICES: Final = array(
    struct({"name": NAME, "attributes": ATTRIBUTES, "capacities": array(CAPACITY)}, ("name",))
)
NODES: Final[Schema] = array(
    struct(
        {
            "name": NAME,
            "pools": array(
                struct(
                    {
                        "name": NAME,
                        "driver": NAME,
                        "attributes": ATTRIBUTES,
                        "resources": DEVICES,
                        "devices": DEVICES,
                    },
                    ("name", "driver"),
                )
            ),
        },
        ("name",),
    )
)
TOPOLOGIES: Final = array(
    struct({"type": NAME, "policy": text() | {"enum": ["prefer", "require"]}}, ("type",))
)
REQUESTS: Final = array(
    struct(
        {
            "capacity": NAME,
            "counter": struct({"request": integer(minimum=0)}, ("request",)),
            "quantity": struct({"request": quantity()}, ("request",)),
            "accessMode": struct({"request": text() | {"enum": list(ACCESS_MODES)}}, ("request",)),
        },
        ("capacity",),
    )
)
DETAIL: Final[dict[str, Schema]] = {
    "driver": text(),
    "constraints": CONSTRAINTS,
    "topologies": TOPOLOGIES,
}
# Stage K0: a claim for a resource; stage K1: a DeviceClaim object.
DEVICE_CLAIM: Final = struct(
    {
        "name": NAME,
        **DETAIL,
        "capacities": REQUESTS,
        "requests": REQUESTS,
        "apiVersion": text(),
        "kind": text(),
        "metadata": struct(
            {
                "name": NAME,
                "namespace": text(),
                "labels": mapping(text()),
                "annotations": mapping(text()),
                "creationTimestamp": text(),
            }
        ),
        "spec": struct(
            {
                **DETAIL,
                "requests": REQUESTS,
                "capacities": REQUESTS,
                "deviceClass": text(),
                "minDeviceCount": integer(minimum=1),
                "maxDeviceCount": integer(minimum=1),
                "attributeMatches": MATCH,
                "accessMode": text(),
                "configs": array(CONFIG),
            }
        ),
    }
)
CLAIM: Final = struct(
    {"name": NAME, "claims": array(DEVICE_CLAIM), "topologies": TOPOLOGIES}, ("name",)
)
POD: Final[Schema] = struct(
    {"podClaim": CLAIM, "containerClaims": array(CLAIM), "topologies": TOPOLOGIES}, ("podClaim",)
)

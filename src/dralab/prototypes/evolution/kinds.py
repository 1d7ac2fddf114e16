"""The kinds of dra-evolution: schemas with their limits, short names and columns.

Fields and limits: wg-device-management a7a4d96, `dra-evolution/pkg/api`.
"""

from typing import Final

from dralab.prototypes.schema_words import (
    Schema,
    anything,
    array,
    boolean,
    kind,
    mapping,
    quantity,
    struct,
    template,
    text,
)

GROUP: Final = "resource.k8s.io"
VERSION: Final = "v1alpha2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
MAX_DEVICES: Final = 128
MAX_SHARED_CAPACITY: Final = 128
MAX_ATTRIBUTES: Final = 32
MAX_CONSUMED: Final = 32
MAX_VALUE: Final = 64
MAX_ID: Final = 32
MAX_DOMAIN: Final = 63
MAX_DRIVER_DATA: Final = 32
FINALIZER: Final = "dra.k8s.io/delete-protection"
MAX_RESERVED_FOR: Final = 32

CAPACITY: Final = struct({"name": text(), "capacity": quantity()}, ("name", "capacity"))
ATTRIBUTE: Final = struct(
    {
        "name": text("A C identifier, or DNS subdomain/C identifier."),
        "quantity": quantity(),
        "bool": boolean(),
        "string": text() | {"maxLength": MAX_VALUE},
        "version": text("A semantic version.") | {"maxLength": MAX_VALUE},
    },
    ("name",),
)
OPAQUE: Final = struct(
    {"opaque": struct({"driverName": text(), "parameters": anything()}, ("driverName",))}
)
CONFIG: Final = array(OPAQUE, "For the driver; not used for allocation.")
REQUIREMENTS: Final[Schema] = array(
    struct({"deviceSelector": text("A CEL expression over `device.…`.")}), "All must hold."
) | {"nullable": True}
REQUEST: Final = struct(
    {
        "name": text("A DNS label by which containers refer to the device."),
        "deviceClassName": text(),
        "config": CONFIG,
        "adminAccess": boolean("Also devices in use by others; controlled by Quota."),
        "requirements": REQUIREMENTS,
    }
)
CLAIM_SPEC: Final = struct(
    {
        "config": CONFIG,
        "constraints": array(
            struct(
                {
                    "matchAttribute": text(
                        "All devices must have this attribute with the same value."
                    )
                }
            )
        ),
        "requests": array(REQUEST, "One device for each."),
        "shareable": boolean("May be used by several consumers at the same time."),
    }
)
ALLOCATED_CONFIG: Final = array(
    struct(
        {
            "admin": boolean(),
            "opaque": struct({"driverName": text(), "parameters": anything()}),
        }
    )
)
RESULT: Final = struct(
    {"config": ALLOCATED_CONFIG, "requestName": text(), "deviceName": text()}, ("deviceName",)
)
DRIVER_DATA: Final = struct(
    {
        "driverName": text(),
        "data": struct({"config": array(anything()), "results": array(RESULT)}),
    },
    ("driverName",),
)
CLAIM_STATUS: Final = struct(
    {
        "allocation": struct(
            {
                "driverData": array(DRIVER_DATA, maxItems=MAX_DRIVER_DATA),
                "nodeName": text("Empty: usable on any node."),
                "shareable": boolean(),
            }
        ),
        "reservedFor": array(
            struct(
                {"apiGroup": text(), "resource": text(), "name": text(), "uid": text()},
                ("resource", "name", "uid"),
            ),
            "A pod that is not listed must not start.",
            maxItems=MAX_RESERVED_FOR,
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
        ),
    }
)
RESOURCES: Final = struct(
    {
        "limits": mapping(quantity()),
        "requests": mapping(quantity()),
        "claims": array(struct({"name": text(), "requestName": text()}, ("name",))),
    }
)
CONTAINER: Final = struct(
    {"name": text(), "image": text(), "command": array(text()), "resources": RESOURCES}, ("name",)
)
POD_CLAIM: Final = struct(
    {"name": text(), "resourceClaimName": text(), "resourceClaimTemplateName": text()}, ("name",)
)
POD_SPEC: Final = struct(
    {
        "nodeName": text(),
        "schedulerName": text(),
        "containers": array(CONTAINER),
        "resourceClaims": array(POD_CLAIM),
    }
)
DEVICE: Final = struct(
    {
        "name": text(),
        "attributes": array(ATTRIBUTE, maxItems=MAX_ATTRIBUTES),
        "sharedCapacityConsumed": array(CAPACITY, maxItems=MAX_CONSUMED),
    },
    ("name",),
)
POOL_SPEC: Final = struct(
    {
        "nodeName": text(),
        "driverName": text(),
        "sharedCapacity": array(CAPACITY, maxItems=MAX_SHARED_CAPACITY),
        "devices": array(DEVICE, maxItems=MAX_DEVICES),
    },
    ("nodeName", "driverName"),
)
KINDS: Final[tuple[Schema, ...]] = (
    kind(
        "DeviceClass deviceclasses dcl",
        {"config": CONFIG, "requirements": REQUIREMENTS},
        namespaced=False,
    ),
    kind(
        "ResourceClaim resourceclaims rc",
        {"spec": CLAIM_SPEC, "status": CLAIM_STATUS},
        required=("spec",),
        columns="Node .status.allocation.nodeName, Reserved-For .status.reservedFor[*].name",
    ),
    kind(
        "ResourceClaimTemplate resourceclaimtemplates rct",
        {"spec": template(CLAIM_SPEC)},
        required=("spec",),
    ),
    kind(
        "ResourcePool resourcepools rp",
        {"spec": POOL_SPEC},
        namespaced=False,
        required=("spec",),
        columns="Driver .spec.driverName, Node .spec.nodeName",
    ),
    kind(
        "Quota quotas",
        {"spec": struct({"allowManagementAccess": boolean("One object with true allows it.")})},
        columns="Management boolean .spec.allowManagementAccess",
    ),
    kind(
        "Pod pods",
        {"spec": POD_SPEC, "status": anything()},
        required=("spec",),
        columns="Status .status.phase, Node .spec.nodeName",
    ),
)

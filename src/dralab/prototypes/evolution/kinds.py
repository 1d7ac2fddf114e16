"""The kinds of dra-evolution: schemas with their limits, short names and columns.

Fields and limits: wg-device-management a7a4d96, `dra-evolution/pkg/api`.
"""

from typing import Final

from dralab.prototypes.schema_words import (
    AGE,
    Schema,
    anything,
    array,
    boolean,
    kind,
    mapping,
    quantity,
    struct,
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


def limited(schema: Schema, most: int) -> Schema:
    """A list of at most so many items."""
    return schema | {"maxItems": most}


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
CLAIM_STATUS: Final = struct(
    {
        "allocation": struct(
            {
                "driverData": limited(
                    array(
                        struct(
                            {
                                "driverName": text(),
                                "data": struct(
                                    {
                                        "config": array(anything()),
                                        "results": array(
                                            struct(
                                                {
                                                    "config": ALLOCATED_CONFIG,
                                                    "requestName": text(),
                                                    "deviceName": text(),
                                                },
                                                ("deviceName",),
                                            )
                                        ),
                                    }
                                ),
                            },
                            ("driverName",),
                        )
                    ),
                    MAX_DRIVER_DATA,
                ),
                "nodeName": text("Empty: usable on any node."),
                "shareable": boolean(),
            }
        ),
        "reservedFor": limited(
            array(
                struct(
                    {"apiGroup": text(), "resource": text(), "name": text(), "uid": text()},
                    ("resource", "name", "uid"),
                ),
                "A pod that is not listed must not start.",
                **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
            ),
            MAX_RESERVED_FOR,
        ),
    }
)
POD_SPEC: Final = struct(
    {
        "nodeName": text(),
        "schedulerName": text(),
        "containers": array(
            struct(
                {
                    "name": text(),
                    "image": text(),
                    "command": array(text()),
                    "resources": struct(
                        {
                            "limits": mapping(quantity()),
                            "requests": mapping(quantity()),
                            "claims": array(
                                struct({"name": text(), "requestName": text()}, ("name",))
                            ),
                        }
                    ),
                },
                ("name",),
            )
        ),
        "resourceClaims": array(
            struct(
                {
                    "name": text(),
                    "resourceClaimName": text(),
                    "resourceClaimTemplateName": text(),
                },
                ("name",),
            )
        ),
    }
)
KINDS: Final[tuple[Schema, ...]] = (
    kind(
        "DeviceClass",
        "deviceclasses",
        ("dcl",),
        namespaced=False,
        properties={"config": CONFIG, "requirements": REQUIREMENTS},
        columns=(AGE,),
    ),
    kind(
        "ResourceClaim",
        "resourceclaims",
        ("rc",),
        namespaced=True,
        required=("spec",),
        properties={"spec": CLAIM_SPEC, "status": CLAIM_STATUS},
        columns=(
            ("Node", "string", ".status.allocation.nodeName"),
            ("Reserved-For", "string", ".status.reservedFor[*].name"),
            AGE,
        ),
    ),
    kind(
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        ("rct",),
        namespaced=True,
        required=("spec",),
        properties={
            "spec": struct(
                {
                    "metadata": struct({"labels": mapping(text()), "annotations": mapping(text())}),
                    "spec": CLAIM_SPEC,
                },
                ("spec",),
            )
        },
        columns=(AGE,),
    ),
    kind(
        "ResourcePool",
        "resourcepools",
        ("rp",),
        namespaced=False,
        required=("spec",),
        properties={
            "spec": struct(
                {
                    "nodeName": text(),
                    "driverName": text(),
                    "sharedCapacity": limited(array(CAPACITY), MAX_SHARED_CAPACITY),
                    "devices": limited(
                        array(
                            struct(
                                {
                                    "name": text(),
                                    "attributes": limited(array(ATTRIBUTE), MAX_ATTRIBUTES),
                                    "sharedCapacityConsumed": limited(
                                        array(CAPACITY), MAX_CONSUMED
                                    ),
                                },
                                ("name",),
                            )
                        ),
                        MAX_DEVICES,
                    ),
                },
                ("nodeName", "driverName"),
            )
        },
        columns=(
            ("Driver", "string", ".spec.driverName"),
            ("Node", "string", ".spec.nodeName"),
            AGE,
        ),
    ),
    kind(
        "Quota",
        "quotas",
        (),
        namespaced=True,
        properties={
            "spec": struct({"allowManagementAccess": boolean("One object with true allows it.")})
        },
        columns=(("Management", "boolean", ".spec.allowManagementAccess"), AGE),
    ),
    kind(
        "Pod",
        "pods",
        (),
        namespaced=True,
        required=("spec",),
        properties={"spec": POD_SPEC, "status": anything()},
        columns=(
            ("Status", "string", ".status.phase"),
            ("Node", "string", ".spec.nodeName"),
            AGE,
        ),
    ),
)

"""The kinds of `devmgmtproto.k8s.io/v1alpha1`: their schemas, short names and columns.

Fields: wg-device-management a7a4d96, `k8srm-prototype/pkg/api`, and the stages before it. Fields
of earlier stages are in the schemas too, and say so: the prototypes' own files use them.
"""

from typing import Final

from dralab.prototypes.schema_words import (
    NOT_EMPTY,
    Schema,
    anything,
    array,
    boolean,
    integer,
    kind,
    mapping,
    quantity,
    struct,
    text,
)

GROUP: Final = "devmgmtproto.k8s.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


MAX_COUNT: Final = 10_000


# A list of capacities, or (in some of the prototype's files) a map from name to quantity.
def capacities(description: str) -> Schema:
    """A list of ResourceCapacity; a map is read as such a list."""
    return {
        "description": description + " A map from name to capacity is read as a list.",
        "x-kubernetes-preserve-unknown-fields": True,
    }


CAPACITY: Final = struct(
    {"name": text(), "capacity": quantity(), "blockSize": quantity("What is taken at once.")},
    ("name", "capacity"),
)
ATTRIBUTE: Final = struct(
    {
        "name": text("Unique within the list."),
        "stringValue": text(),
        "intValue": integer(),
        "quantityValue": quantity(),
        "semVerValue": text("A version; semantic ones can be ordered."),
    },
    ("name",),
    "A name and exactly one typed value. A device's attributes win over its pool's.",
)
CONDITION: Final = struct(
    {
        "type": text(),
        "status": text(),
        "reason": text(),
        "message": text(),
        "lastTransitionTime": text(),
        "observedGeneration": integer(),
    },
    ("type", "status"),
)
CONFIG: Final = struct(
    {
        "apiVersion": text() | NOT_EMPTY,
        "kind": text() | NOT_EMPTY,
        "namespace": text("A class may name any namespace; a claim's is its own."),
        "name": text() | NOT_EMPTY,
    },
    ("apiVersion", "kind", "name"),
    "An object whose content is copied to the claim's status when it is allocated.",
)
CONSTRAINTS: Final = text("A CEL expression over `device`; it must be true for every device.")
MATCH: Final = array(text(), "Attributes whose values must be the same on all chosen devices.")
DISTINCT: Final = array(
    text(), "Attributes whose values must all differ (proposed by the authors)."
)

DETAIL_FIELDS: Final[dict[str, Schema]] = {
    "class": text("The DeviceClass, or a group of classes, that devices must match."),
    "adminAccess": boolean("All devices that meet the constraints, also those in use by others."),
    "constraints": CONSTRAINTS,
    "maxDevices": integer("The most devices; default: as many as requested.", minimum=1),
    "requests": mapping(quantity(), "`devices`: the least number (default 1); others: totals."),
    "matchAttributes": MATCH,
    "distinctAttributes": DISTINCT,
    "configs": array(CONFIG),
    "config": array(CONFIG, "Stage K3 spelling of configs."),
    "devices": integer("Read as requests.devices.", minimum=1),
    "allowShared": boolean("Not in the model: it has no effect."),
    "deviceClass": text("Stage K3 spelling of class."),
    "deviceType": text("Stage K3: any class of that type."),
    "limits": mapping(quantity(), "Stage K3: `count` is read as maxDevices."),
    "count": integer("Stage K3: read as requests.devices.", minimum=1),
}
DETAIL: Final = struct(DETAIL_FIELDS)
ALLOCATION: Final = struct(
    {
        "devicePoolName": text(),
        "deviceName": text(),
        "deviceCount": integer("Stage K2: devices of the pool."),
        "allocations": array(struct({"name": text(), "allocation": quantity()})),
    },
    ("devicePoolName",),
)
CLAIM_STATUS: Final = struct(
    {
        "classConfigs": array(anything(), "Copies of the class's configs as of allocation."),
        "claimConfigs": array(anything(), "Copies of the claim's configs as of allocation."),
        "allocations": array(ALLOCATION, "The scheduler's choice."),
        "deviceStatuses": array(
            struct(
                {
                    "devicePoolName": text(),
                    "deviceName": text(),
                    "conditions": array(CONDITION),
                    "deviceIP": text(),
                    "deviceIPs": array(
                        struct({"ip": text() | NOT_EMPTY}, ("ip",)), "The first is deviceIP."
                    ),
                    "deviceInfo": array(anything()),
                    "allocations": array(struct({"name": text(), "allocation": quantity()})),
                },
                ("devicePoolName", "deviceName"),
            ),
            "Reported by the drivers.",
            **{
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["devicePoolName", "deviceName"],
            },
        ),
        "podNames": array(text(), "Pods that use the claim.", **{"x-kubernetes-list-type": "set"}),
    }
)
EARLY_CLAIM_FIELDS: Final[dict[str, Schema]] = {
    "deviceClass": text("Stages K1, K2: the class of a claim of one kind of device."),
    "driver": text("Stages K1, K2."),
    "constraints": CONSTRAINTS,
    "minDeviceCount": integer("Stages K1, K2: read as requests.devices.", minimum=1),
    "maxDeviceCount": integer("Stages K1, K2: read as maxDevices.", minimum=1),
    "attributeMatches": MATCH,
    "accessMode": text("Stage K1; default: exclusive."),
    "topologies": array(anything(), "Stage K1."),
    "requests": array(anything(), "Stage K1: capacity requests."),
    "configs": array(CONFIG),
    "claims": array(
        struct(
            {
                "name": text("How containers refer to the devices."),
                "oneOf": array(DETAIL, "The first of these that can be satisfied."),
                **DETAIL_FIELDS,
            }
        ),
        "Stage K3: instances, each a detail or alternatives.",
    ),
}
CLAIM_SPEC: Final = struct(
    {
        "matchAttributes": MATCH,
        "distinctAttributes": DISTINCT,
        "devices": array(
            struct(
                {
                    "name": text("How containers refer to the devices."),
                    "allOf": array(DETAIL, "Must all be satisfied."),
                    "oneOf": array(DETAIL, "Also one of these, the first that can be satisfied."),
                    **DETAIL_FIELDS,
                },
                ("name",),
            )
        ),
        **EARLY_CLAIM_FIELDS,
    }
)
OPERATOR: Final = text() | {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]}
CLASS_SPEC: Final = struct(
    {
        "selector": struct(
            {
                "matchLabels": mapping(text()),
                "matchExpressions": array(
                    struct(
                        {"key": text(), "operator": OPERATOR, "values": array(text())},
                        ("key", "operator"),
                    )
                ),
            },
            description="A group: any class whose labels match.",
        ),
        "definition": struct(
            {"driver": text(), "constraints": CONSTRAINTS, "configs": array(CONFIG)},
            description="A leaf: devices of one driver (required, but for a deviceType).",
        ),
        "driver": text("Before stage K4: read as definition.driver."),
        "constraints": CONSTRAINTS,
        "contstraints": text("A misspelling in the prototype's files, read as constraints."),
        "configs": array(CONFIG),
        "deviceType": text("Stages K1 to K3: any driver that handles the type."),
        "deviceTypes": text("A spelling of deviceType."),
        "minDeviceCount": integer("Stages K1, K2: the minimum per claim.", minimum=1),
        "maxDeviceCount": integer("Stages K1, K2: the maximum per claim.", minimum=1),
        "deviceMaxCount": integer("A spelling of maxDeviceCount.", minimum=1),
        "attributeMatches": MATCH,
        "matchAttributes": MATCH,
        "accessMode": text("Stage K1."),
        "adminAccess": boolean("Stage K3."),
    }
)
POOL_SPEC: Final = struct(
    {
        "nodeName": text("The node of all devices; absent for network-attached devices."),
        "driver": text(),
        "attributes": array(ATTRIBUTE, "Common to all devices."),
        "sharedResources": capacities("Resources that all devices of the pool share."),
        "resources": capacities("Stage K3 spelling of sharedResources."),
        "count": integer("Stage K2: number of equal devices.", minimum=0, maximum=MAX_COUNT),
        "devices": array(
            struct(
                {
                    "name": text(),
                    "attributes": array(ATTRIBUTE),
                    "sharedResourcesConsumed": mapping(quantity()),
                    "requests": mapping(quantity(), "Stage K3: sharedResourcesConsumed."),
                    "claimResourcesProvided": capacities(
                        "Resources that the device provides to a claim."
                    ),
                    "resources": capacities("Stage K3: claimResourcesProvided."),
                },
                ("name",),
            )
        ),
    },
    ("driver",),
)


KINDS: Final[tuple[Schema, ...]] = (
    kind(
        "DeviceDriver devicedrivers ddr",
        {"deviceTypes": array(text(), "Types of devices that the driver handles.")},
        namespaced=False,
        columns="Types .deviceTypes",
    ),
    kind(
        "DeviceClass deviceclasses dcl",
        {
            "spec": CLASS_SPEC,
            "status": struct({"conditions": array(CONDITION), "drivers": array(text())}),
        },
        namespaced=False,
        required=("spec",),
        columns='Drivers .status.drivers[*], Ready .status.conditions[?(@.type=="Ready")].status',
    ),
    kind(
        "DeviceClaim deviceclaims dc",
        {"spec": CLAIM_SPEC, "status": CLAIM_STATUS},
        required=("spec",),
        columns="Devices .status.allocations[*].deviceName, Pods .status.podNames",
    ),
    kind(
        "DevicePrivilegedClaim deviceprivilegedclaims dpc",
        {
            "spec": struct(
                {"driver": text(), "constraints": CONSTRAINTS, "configs": array(CONFIG)},
                ("driver",),
            ),
            "status": CLAIM_STATUS,
        },
        required=("spec",),
        columns="Driver .spec.driver",
    ),
    kind(
        "DevicePool devicepools dp",
        {
            "spec": POOL_SPEC,
            "status": struct(
                {
                    "availableDevices": integer("Devices that no claim holds."),
                    "deviceStatuses": array(
                        struct(
                            {
                                "name": text(),
                                "conditions": array(CONDITION),
                                "claimUIDs": array(text(), "The claims that hold the device."),
                            },
                            ("name",),
                        ),
                        "The devices that claims hold.",
                    ),
                }
            ),
        },
        namespaced=False,
        required=("spec",),
        columns="Driver .spec.driver, Node .spec.nodeName, "
        "Available integer .status.availableDevices",
    ),
)
POD_CLAIMS_STRUCT: Final[Schema] = struct(
    {
        "devices": array(
            struct({"name": text("The name that containers use."), "class": text()}, ("class",)),
            "A claim for one device of a class per entry, created for the pod.",
        ),
        "claimName": text("An existing DeviceClaim; other pods may share it.") | NOT_EMPTY,
        "template": struct(
            {
                "claimName": text("The DeviceClaim whose spec is copied.") | NOT_EMPTY,
                "labels": mapping(text()),
                "annotations": mapping(text()),
                "metadata": struct(
                    {"labels": mapping(text()), "annotations": mapping(text())},
                    description="Labels and annotations of the new claim.",
                ),
            },
            ("claimName",),
            "A claim for the pod with the spec of another claim.",
        ),
    }
)
# Stages K1 to K3.
EARLY_POD_CLAIMS: Final[Schema] = array(
    struct(
        {
            "name": text("The name that containers use."),
            "claim": CLAIM_SPEC,
            "template": CLAIM_SPEC,
            "claimName": text() | NOT_EMPTY,
            "claimTemplateName": text() | NOT_EMPTY,
        }
    )
)
# What a pod of this generation has beyond a core/v1 Pod.
POD_CLAIMS: Final[Schema] = {
    "description": "The devices of the pod: exactly one of devices, claimName and template. "
    "Before stage K4: a list of claims, each with a name.",
    "x-kubernetes-preserve-unknown-fields": True,
    # Clients that compute a patch put a whole new value there: it may be a struct or a list.
    "x-kubernetes-patch-strategy": "replace",
    "properties": POD_CLAIMS_STRUCT["properties"],
}
CONTAINER_DEVICES: Final[Schema] = array(
    struct({"name": text()}, ("name",)), "Entries of the pod's devices that the container gets."
)

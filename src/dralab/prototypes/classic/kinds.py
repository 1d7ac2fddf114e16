"""The kinds of classic DRA and of the fake driver: schemas, limits, names, columns.

Fields and limits: k8s.io/api v0.28 `resource/v1alpha2`; 3-shake's fake-dra-driver v0.1.2.
"""

from typing import Final

from dralab.prototypes.classic.structured import GROUP, HANDLE
from dralab.prototypes.schema_words import (
    Schema,
    array,
    boolean,
    integer,
    kind,
    mapping,
    struct,
    template,
    text,
)

VERSION: Final = "v1alpha2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
DRIVER: Final = "fake.resource.3-shake.com"
STATE_GROUP: Final = f"nas.{DRIVER}"
DRIVER_VERSION: Final = "v1alpha1"
WAIT: Final = "WaitForFirstConsumer"
IMMEDIATE: Final = "Immediate"
MAX_NODES: Final = 128
MAX_RESERVED_FOR: Final = 32
MAX_HANDLES: Final = 32
MAX_HANDLE: Final = 16 * 1024

REQUIREMENTS: Final = array(
    struct(
        {
            "key": text(),
            "operator": text() | {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]},
            "values": array(text()),
        },
        ("key", "operator"),
    )
)
NODE_SELECTOR: Final = struct(
    {
        "nodeSelectorTerms": array(
            struct({"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS})
        )
    },
    ("nodeSelectorTerms",),
    "A NodeSelector.",
)
NODES: Final = array(text(), maxItems=MAX_NODES)
PARAMETERS: Final = struct(
    {"apiGroup": text(), "kind": text(), "name": text()}, ("kind", "name"), "For the driver."
)
CLAIM_SPEC: Final = struct(
    {
        "resourceClassName": text(),
        "parametersRef": PARAMETERS,
        "allocationMode": text(
            "When devices are allocated: for the first consumer, or immediately."
        )
        | {"enum": [WAIT, IMMEDIATE], "default": WAIT},
    },
    ("resourceClassName",),
)
CLAIM_STATUS: Final = struct(
    {
        "driverName": text(),
        "allocation": struct(
            {
                "resourceHandles": array(
                    struct(
                        {
                            "driverName": text(),
                            "data": text() | {"maxLength": MAX_HANDLE},
                            "structuredData": HANDLE,
                        }
                    ),
                    maxItems=MAX_HANDLES,
                ),
                "availableOnNodes": NODE_SELECTOR,
                "shareable": boolean("May be used by several consumers at the same time."),
            }
        ),
        "reservedFor": array(
            struct(
                {"apiGroup": text(), "resource": text(), "name": text(), "uid": text()},
                ("resource", "name", "uid"),
            ),
            "A pod that is not listed must not start.",
            maxItems=MAX_RESERVED_FOR,
            **{
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
            },
        ),
        "deallocationRequested": boolean("Asks the driver to deallocate the devices."),
    }
)
# Of a pod: `spec.resourceClaims[*].source`, flattened since resource.k8s.io/v1alpha3.
POD_SOURCE: Final = struct({"resourceClaimName": text(), "resourceClaimTemplateName": text()})

RESOURCE_KINDS: Final[tuple[Schema, ...]] = (
    kind(
        "ResourceClass resourceclasses",
        {
            "driverName": text(),
            "parametersRef": struct(
                {"apiGroup": text(), "kind": text(), "name": text(), "namespace": text()},
                ("kind", "name"),
            ),
            "suitableNodes": NODE_SELECTOR,
            "structuredParameters": boolean("The scheduler itself allocates the devices."),
        },
        namespaced=False,
        required=("driverName",),
        columns="DriverName .driverName",
    ),
    kind(
        "ResourceClaim resourceclaims",
        {"spec": CLAIM_SPEC, "status": CLAIM_STATUS},
        required=("spec",),
        columns="ResourceClassName .spec.resourceClassName, AllocationMode .spec.allocationMode, "
        "Reserved-For .status.reservedFor[*].name",
    ),
    kind(
        "ResourceClaimTemplate resourceclaimtemplates",
        {"spec": template(CLAIM_SPEC)},
        required=("spec",),
        columns="ResourceClassName .spec.spec.resourceClassName, "
        "AllocationMode .spec.spec.allocationMode",
    ),
    kind(
        "PodSchedulingContext podschedulingcontexts",
        {
            "spec": struct({"selectedNode": text(), "potentialNodes": NODES}),
            "status": struct(
                {
                    "resourceClaims": array(
                        struct({"name": text(), "unsuitableNodes": NODES}, ("name",)),
                        "The drivers' answers for each of the pod's claims.",
                        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
                    ),
                }
            ),
        },
        columns="SelectedNode .spec.selectedNode",
    ),
)


def _of_claims(device: Schema) -> Schema:
    """The devices of claims, by the claims' UIDs."""
    return mapping(struct({"fake": struct({"devices": array(device)})}))


STATE: Final[Schema] = kind(
    "NodeAllocationState nodeallocationstates",
    {
        "spec": struct(
            {
                "allocatableDevice": array(
                    struct(
                        {"fake": struct({"uuid": text(), "name": text()}, ("uuid", "name"))},
                        ("fake",),
                    )
                ),
                "allocatedClaims": _of_claims(
                    struct({"uuid": text(), "split": integer()}, ("uuid",))
                ),
                "preparedDevices": _of_claims(
                    struct({"uuid": text(), "parentUUID": text()}, ("uuid",))
                ),
            }
        ),
        "status": text("Ready or NotReady; not a subresource."),
    },
    columns="Status .status",
) | {"singular": "nas", "status": False}

DRIVER_KINDS: Final[tuple[Schema, ...]] = (
    kind(
        "FakeClaimParameters fakeclaimparameters",
        {
            "spec": struct(
                {
                    "count": integer("Number of devices; default: one."),
                    "split": integer(
                        "Number of parts that each device is split into; 0: not split."
                    ),
                    "selector": struct({"model": text()}),
                }
            )
        },
        columns="Count integer .spec.count, Split integer .spec.split",
    ),
    kind(
        "DeviceClassParameters deviceclassparameters",
        {
            "spec": struct(
                {
                    "deviceSelector": array(
                        struct({"type": text(), "name": text()}, ("type", "name"))
                    )
                },
                ("deviceSelector",),
            )
        },
        namespaced=False,
        required=("spec",),
    ),
)

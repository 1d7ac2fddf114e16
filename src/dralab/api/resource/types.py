"""The shape of resource.k8s.io objects, as a table: which struct has which fields of which type.

Source: the Go types of k8s.io/api/resource (v1 of 1.37, with what v1beta1 and v1alpha3 spell
otherwise, and `nodeAllocatableResourceMappings`, which 1.36 has in their place).

Each line of the table is one struct: `field:type` pairs in the order of the API.

* a type is `str`, `int`, `bool`, `quantity`, `time`, `raw` (any JSON value) or another struct,
  `[]T` a list, `{}T` a map with text keys, `*T` a value that may be absent;
* `!` after a field: it is written even when it is zero (there is no `omitempty`).

A struct that is not a pointer is always written, as Go's encoder does.
"""

from functools import cache, cached_property
from typing import Final, Literal

from dralab.values.records import dataclass

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1", "v1alpha3")
SCALARS: Final = frozenset({"str", "int", "bool", "quantity", "time", "raw"})
KINDS: Final = {
    "ResourceSlice": ("v1", "v1beta2", "v1beta1"),
    "DeviceClass": ("v1", "v1beta2", "v1beta1"),
    "ResourceClaim": ("v1", "v1beta2", "v1beta1"),
    "ResourceClaimTemplate": ("v1", "v1beta2", "v1beta1"),
    "DeviceTaintRule": ("v1", "v1beta2", "v1alpha3"),
    "ResourcePoolStatusRequest": ("v1alpha3",),
}
"""Kind → the versions that have it, preferred first; the first is the hub."""

_COMMON: Final = """
ObjectMeta = name:str generateName:str namespace:str selfLink:str uid:str resourceVersion:str
  generation:int creationTimestamp:*time deletionTimestamp:*time deletionGracePeriodSeconds:*int
  labels:{}str annotations:{}str ownerReferences:[]OwnerReference finalizers:[]str
  managedFields:raw
OwnerReference = apiVersion!:str kind!:str name!:str uid!:str controller:*bool
  blockOwnerDeletion:*bool
NodeSelector = nodeSelectorTerms!:[]NodeSelectorTerm
NodeSelectorTerm = matchExpressions:[]NodeSelectorRequirement
  matchFields:[]NodeSelectorRequirement
NodeSelectorRequirement = key!:str operator!:str values:[]str
Condition = type!:str status!:str observedGeneration:int lastTransitionTime!:*time reason!:str
  message!:str

DeviceClass = metadata:ObjectMeta spec:DeviceClassSpec
DeviceClassSpec = selectors:[]DeviceSelector config:[]DeviceConfiguration
  extendedResourceName:*str
DeviceSelector = cel:*CELDeviceSelector
CELDeviceSelector = expression!:str
DeviceConfiguration = opaque:*OpaqueDeviceConfiguration
DeviceClaimConfiguration = requests:[]str opaque:*OpaqueDeviceConfiguration
OpaqueDeviceConfiguration = driver!:str parameters!:raw

ResourceClaim = metadata:ObjectMeta spec:ResourceClaimSpec status:ResourceClaimStatus
ResourceClaimSpec = devices:DeviceClaim
ResourceClaimTemplate = metadata:ObjectMeta spec:ResourceClaimTemplateSpec
ResourceClaimTemplateSpec = metadata:ObjectMeta spec:ResourceClaimSpec
DeviceClaim = requests!:[]DeviceRequest constraints:[]DeviceConstraint
  config:[]DeviceClaimConfiguration
DeviceSubRequest = name!:str deviceClassName!:str selectors:[]DeviceSelector allocationMode:str
  count:int tolerations:[]DeviceToleration capacity:*CapacityRequirements
  derivedAttributes:[]DerivedAttribute
DerivedAttribute = name!:str expression!:str
CapacityRequirements = requests:{}quantity
DeviceToleration = key:str operator:str value:str effect:str tolerationSeconds:*int
DeviceConstraint = requests:[]str matchAttribute:*str distinctAttribute:*str

ResourceClaimStatus = allocation:*AllocationResult reservedFor:[]ResourceClaimConsumerReference
  devices:[]AllocatedDeviceStatus
ResourceClaimConsumerReference = apiGroup:str resource!:str name!:str uid!:str
AllocationResult = devices:DeviceAllocationResult nodeSelector:*NodeSelector
  allocationTimestamp:*time
DeviceAllocationResult = results:[]DeviceRequestAllocationResult
  config:[]DeviceAllocationConfiguration
DeviceRequestAllocationResult = request!:str driver!:str pool!:str device!:str adminAccess:*bool
  tolerations:[]DeviceToleration bindingConditions:[]str bindingFailureConditions:[]str
  shareID:*str consumedCapacity:{}quantity skipNodeOperations:[]str
DeviceAllocationConfiguration = source!:str requests:[]str opaque:*OpaqueDeviceConfiguration
AllocatedDeviceStatus = driver!:str pool!:str device!:str shareID:*str conditions:[]Condition
  data:raw networkData:*NetworkDeviceData
NetworkDeviceData = interfaceName:str ips:[]str hardwareAddress:str

ResourceSlice = metadata:ObjectMeta spec:ResourceSliceSpec
ResourcePool = name!:str generation!:int resourceSliceCount!:int
CounterSet = name!:str counters!:{}Counter
Counter = value!:quantity
DeviceAttribute = int:*int bool:*bool string:*str version:*str ints:[]int bools:[]bool
  strings:[]str versions:[]str
DeviceCapacity = value!:quantity requestPolicy:*CapacityRequestPolicy
CapacityRequestPolicy = default:*quantity validValues:[]quantity
  validRange:*CapacityRequestPolicyRange
CapacityRequestPolicyRange = min:*quantity max:*quantity step:*quantity
DeviceCounterConsumption = counterSet!:str counters!:{}Counter compatibilityGroups:[]str
DeviceTaint = key!:str value:str effect!:str timeAdded:*time
NodeAllocatableResourceMapping = capacityKey:*str allocationMultiplier:*quantity
NodeAllocatableResource = mapping:*NodeAllocatableMapping overhead:*NodeAllocatableOverhead
NodeAllocatableMapping = capacityKey:*str capacityMultiplier:*quantity
  deviceMultiplier:*quantity
NodeAllocatableOverhead = perPod:*quantity perContainer:*quantity

DeviceTaintRule = metadata:ObjectMeta spec:DeviceTaintRuleSpec status:DeviceTaintRuleStatus
DeviceTaintRuleSpec = deviceSelector:*DeviceTaintSelector taint:DeviceTaint
DeviceTaintSelector = driver:*str pool:*str device:*str
DeviceTaintRuleStatus = conditions:[]Condition

ResourcePoolStatusRequest = metadata:ObjectMeta spec:ResourcePoolStatusRequestSpec
  status:*ResourcePoolStatusRequestStatus
ResourcePoolStatusRequestSpec = driver!:str poolName:*str limit:*int
  defaultPartitionTypeAttribute:*str
ResourcePoolStatusRequestStatus = poolCount!:*int pools:[]PoolStatus conditions:[]Condition
PoolStatus = driver!:str poolName!:str generation!:int resourceSliceCount:*int
  totalDevices:*int allocatedDevices:*int availableDevices:*int unavailableDevices:*int
  nodeName:*str validationError:*str partitionSummary:[]PartitionTypeStatus
  shareableSummary:*ShareableSummaryStatus
PartitionTypeStatus = attribute!:str type!:str total!:*int allocatable!:*int
ShareableSummaryStatus = fullyAvailableDevices!:*int partiallyAvailableDevices!:*int
  capacity:[]ShareableCapacityStatus
ShareableCapacityStatus = name!:str total!:*quantity consumed!:*quantity available!:*quantity
"""

_DEVICE_FIELDS: Final = """
  attributes:{}DeviceAttribute capacity:{}DeviceCapacity
  consumesCounters:[]DeviceCounterConsumption nodeName:*str nodeSelector:*NodeSelector
  allNodes:*bool taints:[]DeviceTaint bindsToNode:*bool bindingConditions:[]str
  bindingFailureConditions:[]str allowMultipleAllocations:*bool
  nodeAllocatableResourceMappings:{}NodeAllocatableResourceMapping
  nodeAllocatableResources:{}NodeAllocatableResource
"""

_REQUEST_FIELDS: Final = """
  deviceClassName!:str selectors:[]DeviceSelector allocationMode:str count:int adminAccess:*bool
  tolerations:[]DeviceToleration capacity:*CapacityRequirements
  derivedAttributes:[]DerivedAttribute
"""

_SLICE_TAIL: Final = """
  devices:[]Device perDeviceNodeSelection:*bool sharedCounters:[]CounterSet
  partitionTypeAttribute:*str skipNodeOperations:[]str
"""

_NEW: Final = f"""
ResourceSliceSpec = driver!:str pool:ResourcePool nodeName:*str nodeSelector:*NodeSelector
  allNodes:*bool {_SLICE_TAIL}
Device = name!:str {_DEVICE_FIELDS}
DeviceRequest = name!:str exactly:*ExactDeviceRequest firstAvailable:[]DeviceSubRequest
ExactDeviceRequest = {_REQUEST_FIELDS}
"""

_V1BETA1: Final = f"""
ResourceSliceSpec = driver!:str pool:ResourcePool nodeName:str nodeSelector:*NodeSelector
  allNodes:bool {_SLICE_TAIL}
Device = name!:str basic:*BasicDevice
BasicDevice = {_DEVICE_FIELDS}
DeviceRequest = name!:str {_REQUEST_FIELDS.replace("deviceClassName!", "deviceClassName")}
  firstAvailable:[]DeviceSubRequest
"""


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field: what it holds, in which container, and whether it may be absent."""

    name: str
    container: Literal["", "list", "map"] = ""
    pointer: bool = False

    @property
    def is_struct(self) -> bool:
        """Whether the value is one struct."""
        return not self.container and self.name not in SCALARS


@dataclass(frozen=True, slots=True)
class StructField:
    """One field of a struct; `always` when it is written even when zero."""

    name: str
    type: FieldType
    always: bool


class StructFields(dict[str, StructField]):
    """The fields of a struct in the order of the API."""

    @cached_property
    def places(self) -> dict[str, tuple[int, StructField]]:
        """The place of each field, and the field."""
        return {name: (place, self[name]) for place, name in enumerate(self)}

    @cached_property
    def written(self) -> int:
        """How many fields are written even when they are zero."""
        return sum(field.always for field in self.values())


Structs = dict[str, StructFields]


@cache
def structs(version: str) -> Structs:
    """Return every struct of a version: its name → its fields in the order of the API."""
    return _parsed(_COMMON + (_V1BETA1 if version == "v1beta1" else _NEW))


def _parsed(table: str) -> Structs:
    found: Structs = {}
    current = StructFields()
    words = iter(table.split())
    previous = ""
    for word in words:
        if word == "=":
            current = found[previous] = StructFields()
        elif ":" in word:
            field = _field(word)
            current[field.name] = field
        previous = word
    return found


def _field(word: str) -> StructField:
    name, _, text = word.partition(":")
    always, name = name.endswith("!"), name.removesuffix("!")
    pointer, text = text.startswith("*"), text.removeprefix("*")
    container: Literal["", "list", "map"] = ""
    if text.startswith("[]"):
        container, text = "list", text[2:]
    elif text.startswith("{}"):
        container, text = "map", text[2:]
    kind = FieldType(text, container, pointer)
    return StructField(name, kind, always or (kind.is_struct and not pointer))

"""The codes of explanations: stable names for causes, with what each means and what to do.

A code never changes its meaning; a cause that is told apart later gets a new one.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """One code: a title, what it means, an example of the first line, and what to do."""

    code: str
    title: str
    meaning: str
    example: str
    remedy: str


_ALL: Final = (
    ReasonCode(
        "DRA001", "A claim or template does not exist",
        "The pod names a ResourceClaim or ResourceClaimTemplate that is not in its namespace.",
        'train waits: there is no ResourceClaim "gpu-for-trian"',
        "Correct the name in the pod, or create the object.",
    ),
    ReasonCode(
        "DRA002", "A device class does not exist",
        "A request names a DeviceClass that does not exist. Classes are cluster-wide.",
        'train waits: there is no DeviceClass "gpux"',
        "Correct deviceClassName, or install the driver that brings the class.",
    ),
    ReasonCode(
        "DRA003", "A request that no cluster can meet",
        "The claim is contradictory, or uses something that this cluster has switched off.",
        "train waits: claim ml/c, request r: unsupported count mode Some",
        "Change the claim as the sentence says.",
    ),
    ReasonCode(
        "DRA004", "Too many devices for one claim",
        "One claim may have at most 32 devices.",
        "train waits: it asks for 40 devices, and a claim may have 32",
        "Split the claim into several.",
    ),
    ReasonCode(
        "DRA005", "An expression is not valid CEL",
        "A selector of the claim or its class does not compile, so it has no answer.",
        "train waits: an expression is not valid CEL",
        "Correct the expression at the place shown; `dralab cel` tries expressions.",
    ),
    ReasonCode(
        "DRA006", "An expression fails while it runs",
        "In CEL an error is not false: if a selector fails for one device, Kubernetes stops the "
        "search for the whole pod. Mostly some devices lack an attribute that others have.",
        "train waits: 6 of 30 devices have no architecture, and the expression fails on them",
        "Guard the expression: has(device.attributes[…].name) && …, or .?name.orValue(…).",
    ),
    ReasonCode(
        "DRA007", "There is nothing to allocate",
        "There are no nodes, or no node has any device.",
        "train waits: no node has any device",
        "Check that the driver runs and publishes ResourceSlices.",
    ),
    ReasonCode(
        "DRA008", "A pool cannot be used",
        "A pool is incomplete while its driver replaces it, or its slices contradict each other.",
        "train waits: pool gpu.example.com/n1 is incomplete: 1 of 2 slices are there",
        "Wait for the driver, or look at its log if this lasts.",
    ),
    ReasonCode(
        "DRA010", "A class selects no device",
        "No device meets the selectors of the DeviceClass, so no claim of this class can be met.",
        'train waits: no device belongs to class "gpu"',
        "Check the selectors of the class against the driver's ResourceSlices.",
    ),
    ReasonCode(
        "DRA014", "No device is large enough",
        "A selector compares with a threshold that no device reaches.",
        "dreamer waits: no foozer-gpu has memory ≥ 80Gi",
        "Ask for what the largest device has, or add a node with a larger one.",
    ),
    ReasonCode(
        "DRA021", "No device has the value",
        "A selector asks for a value that no device has. Values are compared letter by letter.",
        'typo waits: no gpu has architecture "hopper"',
        "Choose one of the values that exist; the page lists them with their numbers.",
    ),
    ReasonCode(
        "DRA022", "No device has the attribute or capacity",
        "A selector reads an attribute or a capacity that no device of the class has.",
        'typo waits: no gpu has attribute "Architecture"',
        "Correct the name; the page lists those that exist.",
    ),
    ReasonCode(
        "DRA023", "No device has the domain",
        "A selector reads attributes of a domain in which no device has any.",
        'typo waits: no device has attributes of domain "gpus.example.com"',
        "Correct the domain; mostly it is the name of the driver.",
    ),
    ReasonCode(
        "DRA024", "No device has the driver",
        "A selector asks for a driver that publishes no devices.",
        'typo waits: no device has driver "gpu.nvidia.org"',
        "Correct the name, or install the driver.",
    ),
    ReasonCode(
        "DRA025", "No device meets a condition",
        "A selector has a condition that no device meets.",
        "train waits: no gpu has model beginning with \"H\"",
        "Compare the condition with the values shown.",
    ),
    ReasonCode(
        "DRA026", "No device meets all conditions",
        "Each condition is met by some device, all together by none.",
        "train waits: no gpu meets all of its 2 conditions",
        "Give up the condition that matters least; the page counts the devices for each.",
    ),
    ReasonCode(
        "DRA027", "A constraint compares an attribute that devices lack",
        "matchAttribute and distinctAttribute only accept devices that have the attribute.",
        "train waits: no gpu has attribute gpu.example.com/numa, which a constraint reads",
        "Correct the name of the attribute.",
    ),
    ReasonCode(
        "DRA028", "No device offers that much capacity",
        "The request asks for more of a capacity than any device can give to one request.",
        "train waits: no nic offers 40Gi bandwidth",
        "Ask for less.",
    ),
    ReasonCode(
        "DRA030", "All suitable devices are in use",
        "There are such devices, and other claims hold them.",
        "late waits: all 16 suitable devices are in use",
        "Wait for one of the holders that the page names, or change the request.",
    ),
    ReasonCode(
        "DRA031", "No node has so many devices",
        "All devices of a pod come from one node, and no node has as many, even if none were "
        "in use.",
        "train waits: no node has 16 gpus, the largest has 8",
        "Ask for fewer, or spread the work over several pods.",
    ),
    ReasonCode(
        "DRA032", "Free devices are scattered over nodes",
        "Enough devices are free in the cluster, but not on one node (fragmentation).",
        "train waits: 12 suitable devices are free, but no node has 4 free",
        "Wait, move a pod, or ask for fewer.",
    ),
    ReasonCode(
        "DRA033", "Free devices do not agree with the constraint",
        "Enough devices are free, but those of one node do not agree in the attribute of a "
        "constraint. It could be met if others released their devices.",
        "train waits: 12 devices are free, but no node has 4 of one numa free",
        "Wait or move a pod, loosen the constraint, or ask for fewer.",
    ),
    ReasonCode(
        "DRA034", "No node has devices with a common value",
        "matchAttribute asks for more devices with one value than any node has.",
        "train waits: no node has 4 devices with the same numa",
        "Ask for fewer, or match a wider attribute.",
    ),
    ReasonCode(
        "DRA035", "No node has devices with enough different values",
        "distinctAttribute asks for more different values than any node has.",
        "train waits: no node has 4 devices that differ in numa",
        "Ask for fewer, or leave the constraint out.",
    ),
    ReasonCode(
        "DRA036", "Requests compete for the same devices",
        "Each request of the pod could be met alone, but they need more devices than suit them.",
        "train waits: requests a and b compete for 1 device",
        "Change one of the requests.",
    ),
    ReasonCode(
        "DRA037", "Parts do not fit together",
        "Parts of one device draw on a shared counter that does not last for all of them.",
        "train waits: the parts it asks for do not fit on one device together (gpu-0/slices)",
        "Ask for smaller parts, or fewer.",
    ),
    ReasonCode(
        "DRA038", "No room left on partitioned devices",
        "Other parts of the same devices are in use, and what is left of a shared counter is too "
        "little.",
        "late waits: no device has room left for 1 gpu",
        "Wait for those who hold the parts, or ask for a smaller one.",
    ),
    ReasonCode(
        "DRA039", "Too little capacity is left",
        "Shared devices have the capacity, but others consume too much of it.",
        "late waits: no nic has 10Gi bandwidth left",
        "Wait, or ask for less.",
    ),
    ReasonCode(
        "DRA040", "Devices are tainted",
        "Suitable devices have a taint that the request does not tolerate.",
        "train waits: every suitable device has taint sick=yes:NoSchedule",
        "Repair the devices, or add a toleration to the request.",
    ),
    ReasonCode(
        "DRA041", "The requests cannot be met together",
        "Each request could be met alone. The page lists a minimal set of conditions that "
        "exclude each other.",
        "train waits: no node can meet all of its requests at once",
        "Change one of the conditions listed.",
    ),
    ReasonCode(
        "DRA042", "None of the alternatives can be had",
        "A request with firstAvailable: every alternative fails, each for its own cause.",
        "train waits: none of the 2 alternatives of request gpu can be had",
        "Look at the cause of the alternative that you prefer, or add another one.",
    ),
    ReasonCode(
        "DRA043", "No node has that much in total",
        "A rule over several devices asks for more of a capacity than the devices of any node "
        "have together. Only older generations of the device API have such rules.",
        "train waits: no node has 2 devices with 90Gi memory in total",
        "Ask for less, or for more devices.",
    ),
    ReasonCode(
        "DRA044", "Not all devices of a node are free",
        "allocationMode All wants every suitable device of one node, and on every node some of "
        "them are in use or tainted.",
        "train waits: it wants all gpus of a node, and no node has all of them free",
        "Wait for those who hold the others, or ask for a number of devices.",
    ),
    ReasonCode(
        "DRA050", "The node is cordoned",
        "A node with the devices is marked unschedulable.",
        "train waits: node-7 has the devices, but is cordoned",
        "kubectl uncordon NODE",
    ),
    ReasonCode(
        "DRA051", "The node has a taint",
        "A node with the devices has a taint that the pod does not tolerate.",
        "train waits: node-7 has the devices, but has taint gpu=only",
        "Add a toleration to the pod.",
    ),
    ReasonCode(
        "DRA052", "The node does not match the pod's node selector",
        "A node with the devices is excluded by the pod's nodeSelector, affinity or nodeName.",
        "train waits: node-7 has the devices, but does not match its node selector",
        "Change the node selector, or label the node.",
    ),
    ReasonCode(
        "DRA053", "The node lacks CPU, memory or another resource",
        "A node with the devices has too little left of what the pod requests besides.",
        "train waits: node-7 has the devices, but 2 of the 6 cpu",
        "Request less, or free the node.",
    ),
    ReasonCode(
        "DRA054", "A claim has its devices on another node",
        "A claim of the pod is allocated already, and its devices cannot be used from other nodes.",
        "train waits: claim train-gpu has its devices on node-3, which the pod does not select",
        "Let the pod go where its claim is, or give it another claim.",
    ),
    ReasonCode(
        "DRA055", "A host port is taken",
        "A node with the devices runs a pod that has the host port which this pod asks for.",
        "train waits: node-7 has the devices, but port 8080 is taken there by serve-a",
        "Take another host port, or none, or wait until the other pod ends.",
    ),
    ReasonCode(
        "DRA056", "No pod that it must be near",
        "The pod's required affinity wants other pods in the same domain, and none runs where the "
        "devices are.",
        "train waits: node-7 has the devices, but no pod with app=cache runs in the same zone, as "
        "its affinity requires",
        "Start the other pods there first, or make the affinity a preference.",
    ),
    ReasonCode(
        "DRA057", "A pod that it must not be near",
        "The anti-affinity of the pod, or of a pod that is there, excludes the nodes with the "
        "devices.",
        "train waits: node-7 has the devices, but serve-a (app=serve) runs there, which its "
        "anti-affinity excludes",
        "Wait until the other pod ends, move it, or make the anti-affinity a preference.",
    ),
    ReasonCode(
        "DRA058", "Its pods would lie too unevenly",
        "A topology spread constraint allows no more pods in the domain of the nodes with the "
        "devices, or these nodes lack the label by which it counts.",
        "train waits: node-7 has the devices, but one more pod with app=train in the same zone "
        "would exceed maxSkew 1",
        "Raise maxSkew, set whenUnsatisfiable: ScheduleAnyway, or label the nodes.",
    ),
    ReasonCode(
        "DRA060", "Not settled",
        "The search for devices was given up before it ended: neither yes nor no.",
        "train waits: the search for devices was given up before it ended",
        "Simplify the claim: fewer requests, fewer constraints.",
    ),
    ReasonCode(
        "DRA061", "A quota is exhausted",
        "A ResourceQuota of the namespace keeps the claim from being made from its template.",
        "train waits: quota team allows 4 of gpu, 4 in use and 1 more asked for",
        "Wait until claims of the namespace are deleted, ask for less, or raise the quota.",
    ),
    ReasonCode(
        "DRA062", "A volume keeps it from the devices",
        "A volume of the pod cannot be used where the devices are, or its claim has no volume yet.",
        "train waits: node-7 has the devices, but its volume (claim data) cannot be used there",
        "Free devices where the volume is, or use a volume that every node reaches.",
    ),
    ReasonCode(
        "DRA063", "Its gang does not fit",
        "The pods of a PodGroup with a gang policy start together or not at all, and too few of "
        "them find devices at once.",
        "train-0 waits: gang train starts with 4 pods at once, and only 3 fit",
        "Look at the pod that the page names, or lower minCount.",
    ),
    ReasonCode(
        "DRA064", "The devices take more of the node than it has left",
        "Devices can take CPU or memory of their node. A node has the devices, but not that much "
        "beside what the pod requests itself.",
        "train waits: node-7 has the devices, but with them the pod needs 6 cpu (4 of it for its "
        "devices), and 5 is free",
        "Request less, choose devices that take less, or free the node.",
    ),
    ReasonCode(
        "DRA065", "The pod has scheduling gates",
        "No scheduler looks at a pod before all of its scheduling gates are removed.",
        "train waits: 1 scheduling gate to be removed first: example.com/quota",
        "Wait for the controller that set the gate, or remove it.",
    ),
    ReasonCode(
        "DRA066", "A claim is not created yet",
        "The pod uses a template, and the resource claim controller has not made its claim.",
        'train waits: pod "ml/train": ResourceClaim not created yet',
        "Wait a moment; if it lasts, look at the events of the pod and at kube-controller-manager.",
    ),
    ReasonCode(
        "DRA067", "A claim is being deleted",
        "A claim that is being deleted gets no devices, and no further pod may use it.",
        'train waits: resourceclaim "gpu" is being deleted',
        "Wait until it is gone, then create it again.",
    ),
    ReasonCode(
        "DRA068", "A claim belongs to another pod",
        "The claim has the name of one that is made for the pod, and another pod owns it.",
        "train waits: ResourceClaim ml/train-gpu was not created for Pod ml/train",
        "Delete the claim that is in the way, or rename the pod.",
    ),
    ReasonCode(
        "DRA069", "A claim has too many users",
        "At most 256 pods may use one claim at a time.",
        "train waits: resourceclaim in use",
        "Wait until another pod ends, or use a claim of its own.",
    ),
    ReasonCode(
        "DRA070", "Another scheduler serves the pod",
        "The pod names another scheduler in spec.schedulerName, which decides by its own rules.",
        "train waits: it is left to scheduler volcano",
        "Look at that scheduler's events and log.",
    ),
    ReasonCode(
        "DRA071", "The pod is being deleted",
        "A pod that is being deleted is not scheduled any more.",
        "train waits: the pod is being deleted",
        "Nothing: it will be gone.",
    ),
    ReasonCode(
        "DRA072", "Devices are not ready to be used",
        "A claim has its devices, and the pod is bound once conditions that the driver named are "
        "met.",
        "train waits: it waits on node n1 for binding conditions dra.example.com/attached",
        "Look at status.devices of the claim, and at the controller that sets the conditions.",
    ),
    ReasonCode(
        "DRA073", "Nobody offers the resource",
        "The pod asks for an extended resource that no node has in status.allocatable and that no "
        "DeviceClass names in extendedResourceName.",
        "train waits: no node offers example.com/foo, and no DeviceClass provides it",
        "Correct the name, install the device plugin, or set extendedResourceName of a class.",
    ),
    ReasonCode(
        "DRA074", "Others are being preempted for the pod",
        "The scheduler nominated a node for the pod (status.nominatedNodeName) and preempts pods "
        "of a lower priority there. It is tried again when they have ended.",
        "train waits: n1 is nominated for it, once batch-3 has ended there",
        "Wait until these pods end; a long terminationGracePeriodSeconds or a finalizer delays it.",
    ),
    ReasonCode(
        "DRA075", "Its group does not fit into one place",
        "The pods of a PodGroup or CompositePodGroup with a topology constraint run on nodes that "
        "have the same value of a label, such as one rack, and no value has room for all of them.",
        "train-0 waits: gang train needs 16 pods in one example.com/rack; rack-3 has room for 14",
        "Free nodes of the place that is named, lower minCount, or drop the constraint.",
    ),
)  # fmt: skip

CODES: Final = MappingProxyType({each.code: each for each in _ALL})
"""Every code, by its name."""


def code_text(code: ReasonCode) -> str:
    """Return what a code means, for people."""
    return "\n".join(
        [f"{code.code}: {code.title}", "", code.meaning, "", f"  {code.example}", "", code.remedy]
    )

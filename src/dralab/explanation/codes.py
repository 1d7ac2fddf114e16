"""The codes of explanations: stable names for causes, with their sentences and what to do.

A code never changes its meaning; a cause that is told apart later gets a new one. Here a sentence
is read and changed beside the code that it tells; `written` fills it in, `sentences` gives the
fields.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from string import Formatter
from types import MappingProxyType
from typing import Any, Final

from dralab.explanation.names import MOST_NAMES, amount, counted, listed
from dralab.values.records import dataclass

ANY: Final = "{text}"
"""The sentence of a cause that brings its own words."""
OPTIONAL: Final = re.compile(r"\[([^\[\]]*)\]")
Line = tuple[str, str]
"""A line of the page: what it says, and an aside to its right."""


class _EmptyField(Exception):  # noqa: N818 - it says what happened
    """A sentence has an empty field."""


class _SentenceWriter(Formatter):
    """Fills in the fields of sentences: `{nodes:node}` counts nodes, `{known:6}` lists six."""

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        value = kwargs.get(str(key), args)  # which are none
        if value is None or value in ("", ()):
            raise _EmptyField(key)
        return value

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, tuple):
            return listed(value, int(format_spec or MOST_NAMES))
        if format_spec == "amount":
            return amount(value)
        return counted(value, format_spec) if format_spec and value != str(value) else str(value)


WRITER: Final = _SentenceWriter()


def written(sentence: str, fields: Mapping[str, Any]) -> str:
    """Return a sentence with its fields; empty if one is. Brackets with empty fields are dropped.

    >>> written("{free} of {total:device}[ on {node}]", {"free": 0, "total": 2, "node": ""})
    '0 of 2 devices'
    """
    found = []
    for number, part in enumerate(OPTIONAL.split(sentence)):
        try:
            found.append(WRITER.vformat(part, (), fields))
        except _EmptyField:
            if number % 2 == 0:
                return ""
    return "".join(found)


def first_of(sentences: tuple[str, ...], fields: Mapping[str, Any]) -> str:
    """Return the first of some sentences whose fields are all set; empty if there is none."""
    return next(filter(None, (written(each, fields) for each in sentences)), "")


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """One code: a title, what it means, an example of the first line, and what to do.

    Of its `sentences` the first is used whose fields a cause has all; so of each of `lines`, which
    tell what exists instead.
    """

    code: str
    title: str
    meaning: str
    example: str
    remedy: str
    sentences: tuple[str, ...] = (ANY,)
    lines: tuple[tuple[str, ...], ...] = ()

    def sentence(self, fields: Mapping[str, Any]) -> str:
        """Return the sentence for the fields that a cause has; empty ones it does not have."""
        return first_of((*self.sentences, ANY), fields) or self.title

    def what_exists(self, fields: Mapping[str, Any]) -> Iterator[Line]:
        """Yield what exists instead, line by line."""
        for each in self.lines:
            for text, _, aside in (line.partition(" | ") for line in each):
                if told := written(text, fields):
                    yield told, written(aside, fields)
                    break


# A code and its title; `=` its sentences; `~` who waits and with which fields, for the example; `:`
# what it means; `>` what to do; `+` what exists instead, with an aside behind ` | `, `/` in other
# words where a field is empty, `*` as with another code.
_TABLE: Final = """\
DRA001 A claim or template does not exist
  = there is no {missing} "{name}"
  ~ train missing=ResourceClaim|name=gpu-for-trian
  : The pod names a ResourceClaim or ResourceClaimTemplate that is not in its namespace.
  > Correct the name in the pod, or create the object.
  + one of that name in namespace {elsewhere:3}; a pod can use only those of its own namespace
  / {kinds} {known:6}
  / no {kinds}
DRA002 A device class does not exist
  = there is no DeviceClass "{name}"
  ~ train name=gpux
  : A request names a DeviceClass that does not exist. Classes are cluster-wide.
  > Correct deviceClassName, or install the driver that brings the class.
  * DRA001
DRA003 A request that no cluster can meet
  ~ train text=claim ml/c, request r: unsupported count mode Some
  : The claim is contradictory, or uses something that this cluster has switched off.
  > Change the claim as the sentence says.
DRA004 Too many devices for one claim
  ~ train text=it asks for 40 devices, and a claim may have 32
  : One claim may have at most 32 devices.
  > Split the claim into several.
DRA005 An expression is not valid CEL
  = an expression is not valid CEL
  ~ train
  : A selector of the claim or its class does not compile, so it has no answer.
  > Correct the expression at the place shown; `dralab cel` tries expressions.
DRA006 An expression fails while it runs
  = {devices} of {total:device} have no {name}, and the expression fails on them
  = an expression fails on {devices} of {total:device}
  ~ train devices=6|total=30 devices|name=architecture
  : In CEL an error is not false: if a selector fails for one device, Kubernetes stops the search
  : for the whole pod. Mostly some devices lack an attribute that others have.
  > Guard the expression: has(device.attributes[…].name) && …, or .?name.orValue(…).
  + {rest:device} with {name}, {devices} without | {example}
  / on {example}: {message}
  + one device on which an expression fails stops the search for the pod
DRA007 There is nothing to allocate
  ~ train text=no node has any device
  : There are no nodes, or no node has any device.
  > Check that the driver runs and publishes ResourceSlices.
DRA008 A pool cannot be used
  ~ train text=pool gpu.example.com/n1 is incomplete: 1 of 2 slices are there
  : A pool is incomplete while its driver replaces it, or its slices contradict each other.
  > Wait for the driver, or look at its log if this lasts.
  + its driver is replacing it; look at the driver's log if this lasts
DRA010 A class selects no device
  = no device belongs to class "{class}"
  ~ train class=gpu
  : No device meets the selectors of the DeviceClass, so no claim of this class can be met.
  > Check the selectors of the class against the driver's ResourceSlices.
  * DRA021
DRA014 No device is large enough
  = no {what} has {condition}
  ~ dreamer what=foozer-gpu|condition=memory ≥ 80Gi
  : A selector compares with a threshold that no device reaches.
  > Ask for what the largest device has, or add a node with a larger one.
  * DRA021
DRA021 No device has the value
  = no {what} has {condition}
  ~ typo what=gpu|condition=architecture "hopper"
  : A selector asks for a value that no device has. Values are compared letter by letter.
  > Choose one of the values that exist; the page lists them with their numbers.
  + {total:device}, with domain {domains:4} | {example}
  / {total:device}, which have: {names:8} | {example}
  / on {example}: {message}
  / {having} on {nodes:node}, with {name} {only} | {examples}
  / {having} on {nodes:node}, the {extreme} {name} is {best} | {examples}
  / {having} on {nodes:node}; {name}: {offers:6} | {examples}
  / {having} on {nodes:node} with {known:6} | {examples}
  / {having} on {nodes:node} | {examples}
DRA022 No device has the attribute or capacity
  = no {what} has {word} "{name}"
  ~ typo what=gpu|word=attribute|name=Architecture
  : A selector reads an attribute or a capacity that no device of the class has.
  > Correct the name; the page lists those that exist.
  * DRA021
DRA023 No device has the domain
  = no {what} has {words} of domain "{domain}"
  ~ typo what=device|words=attributes|domain=gpus.example.com
  : A selector reads attributes of a domain in which no device has any.
  > Correct the domain; mostly it is the name of the driver.
  * DRA021
DRA024 No device has the driver
  = no device has driver "{literal}"
  ~ typo literal=gpu.nvidia.org
  : A selector asks for a driver that publishes no devices.
  > Correct the name, or install the driver.
  * DRA021
DRA025 No device meets a condition
  = no {what} has {condition}
  = no {what} meets a condition
  ~ train what=gpu|condition=model beginning with "H"
  : A selector has a condition that no device meets.
  > Compare the condition with the values shown.
  * DRA021
DRA026 No device meets all conditions
  = no {one} meets all of its {number} conditions
  ~ train one=gpu|number=2
  : Each condition is met by some device, all together by none.
  > Give up the condition that matters least; the page counts the devices for each.
  + {having} on {nodes:node}
DRA027 A constraint compares an attribute that devices lack
  = no {one} has attribute {name}, which a constraint reads
  ~ train one=gpu|name=gpu.example.com/numa
  : matchAttribute and distinctAttribute only accept devices that have the attribute.
  > Correct the name of the attribute.
  + {having} on {nodes:node}, the largest offers {best} {name} | {examples}
  / {having} on {nodes:node}, which have: {names:8}
  / {having} on {nodes:node} | {examples}
DRA028 No device offers that much capacity
  = no {one} offers {needed} {name}
  = no {one} has capacity {name}
  ~ train one=nic|needed=40Gi|name=bandwidth
  : The request asks for more of a capacity than any device can give to one request.
  > Ask for less.
  * DRA027
DRA030 All suitable devices are in use
  = {all} in use
  = no node has {devices} free, the best has {most_free}
  ~ late all=all 16 suitable devices are
  : There are such devices, and other claims hold them.
  > Wait for one of the holders that the page names, or change the request.
  + {total:suitable device} on {nodes:node}[, {free} free, at most {left} on one node][, {held}]
  + {blocked}[; {held_too}]
  + taints: {taints:4}
DRA031 No node has so many devices
  = no node has {devices}, the largest has {most}
  = no node can give {devices}
  ~ train devices=16 gpus|most=8
  : All devices of a pod come from one node, and no node has as many, even if none were in use.
  > Ask for fewer, or spread the work over several pods.
  + {total:suitable device} on {nodes:node}, at most {at_once} on one node
  + nearest: {name} has {offered} of the {needed} needed
DRA032 Free devices are scattered over nodes
  = {free} suitable devices are free, but no node has {count} free
  ~ train free=12|count=4
  : Enough devices are free in the cluster, but not on one node (fragmentation).
  > Wait, move a pod, or ask for fewer.
  * DRA030
DRA033 Free devices do not agree with the constraint
  = no node has {wanted:device} with {amount} free {short} in total
  = {free} devices are free, but no node has {wanted} {rule} free
  ~ train free=12|wanted=4|rule=of one numa
  : Enough devices are free, but those of one node do not agree in the attribute of a constraint. It
  : could be met if others released their devices.
  > Wait or move a pod, loosen the constraint, or ask for fewer.
  + at most {best} {short} free on one node | {where}
  / {having} free, at most {most} {agreeing} on one node | {where}: {short} {offers}
  + the others are held by {others}
DRA034 No node has devices with a common value
  = no node has {wanted} devices with the same {short}
  ~ train wanted=4|short=numa
  : matchAttribute asks for more devices with one value than any node has.
  > Ask for fewer, or match a wider attribute.
  + {having}, at most {most} {agreeing} on one node | {where}: {short} {offers}
DRA035 No node has devices with enough different values
  = no node has {wanted} devices that differ in {short}
  ~ train wanted=4|short=numa
  : distinctAttribute asks for more different values than any node has.
  > Ask for fewer, or leave the constraint out.
  * DRA034
DRA036 Requests compete for the same devices
  = requests {requests} compete for {devices:device}
  ~ train requests=a and b|devices=1 device
  : Each request of the pod could be met alone, but they need more devices than suit them.
  > Change one of the requests.
  + {devices:device} {suit} {requests}, which want {wanted} | {where}
DRA037 Parts do not fit together
  = the parts it asks for do not fit on one device together ({counter})
  = the devices of a node exclude each other: they share {shared}
  ~ train counter=gpu-0/slices
  : Parts of one device draw on a shared counter that does not last for all of them.
  > Ask for smaller parts, or fewer.
  + counter {shared} has {offered} of the {needed} needed at least | {where}
DRA038 No room left on partitioned devices
  = no {one} has the {needed} {short} left, the nearest has {offered}
  ~ late one=gpu|needed=4|short=slices|offered=2
  : Other parts of the same devices are in use, and what is left of a shared counter is too little.
  > Wait for those who hold the parts, or ask for a smaller one.
  * DRA030
DRA039 Too little capacity is left
  = no {one} has {needed} {short} left, the best has {offered}
  ~ late one=nic|needed=10Gi|short=bandwidth|offered=4Gi
  : Shared devices have the capacity, but others consume too much of it.
  > Wait, or ask for less.
  * DRA030
DRA040 Devices are tainted
  = {every} suitable device has taint {taint}
  ~ train every=every|taint=sick=yes:NoSchedule
  : Suitable devices have a taint that the request does not tolerate.
  > Repair the devices, or add a toleration to the request.
  * DRA030
DRA041 The requests cannot be met together
  = no node can meet all of its requests at once
  ~ train
  : Each request could be met alone. The page lists a minimal set of conditions that exclude each
  : other.
  > Change one of the conditions listed.
DRA042 None of the alternatives can be had
  = no alternative of request {request} can be had
  ~ train request=gpu
  : A request with firstAvailable: every alternative fails, each for its own cause.
  > Look at the cause of the alternative that you prefer, or add another one.
DRA043 No node has that much in total
  = no node has {wanted:device} with {amount} {short} in total
  ~ train wanted=2 devices|amount=90Gi|short=memory
  : A rule over several devices asks for more of a capacity than the devices of any node have
  : together. Only older generations of the device API have such rules.
  > Ask for less, or for more devices.
  + at most {best} {short} on one node | {where}
DRA044 Not all devices of a node are free
  = it wants all {ones} of a node, and no node has all of them free
  ~ train ones=gpus
  : allocationMode All wants every suitable device of one node, and on every node some of them are
  : in use or tainted.
  > Wait for those who hold the others, or ask for a number of devices.
  * DRA030
DRA050 The node is cordoned
  ~ train text=node-7 has the devices, but is cordoned
  : A node with the devices is marked unschedulable.
  > kubectl uncordon NODE
DRA051 The node has a taint
  ~ train text=node-7 has the devices, but has taint gpu=only
  : A node with the devices has a taint that the pod does not tolerate.
  > Add a toleration to the pod.
DRA052 The node does not match the pod's node selector
  ~ train text=node-7 has the devices, but does not match its node selector
  : A node with the devices is excluded by the pod's nodeSelector, affinity or nodeName.
  > Change the node selector, or label the node.
DRA053 The node lacks CPU, memory or another resource
  ~ train text=node-7 has the devices, but 2 of the 6 cpu
  : A node with the devices has too little left of what the pod requests besides.
  > Request less, or free the node.
DRA054 A claim has its devices on another node
  ~ train text=claim train-gpu has its devices on node-3, which the pod does not select
  : A claim of the pod is allocated already, and its devices cannot be used from other nodes.
  > Let the pod go where its claim is, or give it another claim.
DRA055 A host port is taken
  ~ train text=node-7 has the devices, but port 8080 is taken there by serve-a
  : A node with the devices runs a pod that has the host port which this pod asks for.
  > Take another host port, or none, or wait until the other pod ends.
DRA056 No pod that it must be near
  ~ train text=node-7 has the devices, but no pod with app=cache runs in the same zone, as its
  ~ affinity requires
  : The pod's required affinity wants other pods in the same domain, and none runs where the devices
  : are.
  > Start the other pods there first, or make the affinity a preference.
DRA057 A pod that it must not be near
  ~ train text=node-7 has the devices, but serve-a (app=serve) runs there, which its anti-affinity
  ~ excludes
  : The anti-affinity of the pod, or of a pod that is there, excludes the nodes with the devices.
  > Wait until the other pod ends, move it, or make the anti-affinity a preference.
DRA058 Its pods would lie too unevenly
  ~ train text=node-7 has the devices, but one more pod with app=train in the same zone would exceed
  ~ maxSkew 1
  : A topology spread constraint allows no more pods in the domain of the nodes with the devices, or
  : these nodes lack the label by which it counts.
  > Raise maxSkew, set whenUnsatisfiable: ScheduleAnyway, or label the nodes.
DRA060 Not settled
  = the search for devices was given up before it ended
  ~ train
  : The search for devices was given up before it ended: neither yes nor no.
  > Simplify the claim: fewer requests, fewer constraints.
DRA061 A quota is exhausted
  ~ train text=quota team allows 4 of gpu, 4 in use and 1 more asked for
  : A ResourceQuota of the namespace keeps a claim from being made: from its template, or by the
  : scheduler for extended resources, on the node that it has chosen.
  > Wait until claims of the namespace are deleted, ask for less, or raise the quota.
DRA062 A volume keeps it from the devices
  ~ train text=node-7 has the devices, but its volume (claim data) cannot be used there
  : A volume of the pod cannot be used where the devices are, or its claim has no volume yet.
  > Free devices where the volume is, or use a volume that every node reaches.
DRA063 Its gang does not fit
  = gang {group} starts with {least:pod}, and only {exist}
  = gang {group} starts with {least:pod} at once, and {few}
  ~ train-0 group=train|least=4 pods|few=only 3 fit
  : The pods of a PodGroup with a gang policy start together or not at all, and too few of them find
  : devices at once.
  > Look at the pod that the page names, or lower minCount.
  + for {failing}: {failure}
DRA064 The devices take more of the node than it has left
  ~ train text=node-7 has the devices, but with them the pod needs 6 cpu (4 of it for its devices),
  ~ and 5 is free
  : Devices can take CPU or memory of their node. A node has the devices, but not that much beside
  : what the pod requests itself.
  > Request less, choose devices that take less, or free the node.
DRA065 The pod has scheduling gates
  ~ train text=1 scheduling gate to be removed first: example.com/quota
  : No scheduler looks at a pod before all of its scheduling gates are removed.
  > Wait for the controller that set the gate, or remove it.
DRA066 A claim is not created yet
  ~ train text=pod "ml/train": ResourceClaim not created yet
  : The pod uses a template, and the resource claim controller has not made its claim.
  > Wait a moment; if it lasts, look at the events of the pod and at kube-controller-manager.
DRA067 A claim is being deleted
  ~ train text=resourceclaim "gpu" is being deleted
  : A claim that is being deleted gets no devices, and no further pod may use it.
  > Wait until it is gone, then create it again.
DRA068 A claim belongs to another pod
  ~ train text=ResourceClaim ml/train-gpu was not created for Pod ml/train
  : The claim has the name of one that is made for the pod, and another pod owns it.
  > Delete the claim that is in the way, or rename the pod.
DRA069 A claim has too many users
  ~ train text=resourceclaim in use
  : At most 256 pods may use one claim at a time.
  > Wait until another pod ends, or use a claim of its own.
DRA070 Another scheduler serves the pod
  ~ train text=it is left to scheduler volcano
  : The pod names another scheduler in spec.schedulerName, which decides by its own rules.
  > Look at that scheduler's events and log.
DRA071 The pod is being deleted
  ~ train text=the pod is being deleted
  : A pod that is being deleted is not scheduled any more.
  > Nothing: it will be gone.
DRA072 Devices are not ready to be used
  ~ train text=it waits on node n1 for binding conditions dra.example.com/attached
  : A claim has its devices, and the pod is bound once conditions that the driver named are met.
  > Look at status.devices of the claim, and at the controller that sets the conditions.
DRA073 Nobody offers the resource
  ~ train text=no node offers example.com/foo, and no DeviceClass provides it
  : The pod asks for an extended resource that no node has in status.allocatable and that no
  : DeviceClass names in extendedResourceName.
  > Correct the name, install the device plugin, or set extendedResourceName of a class.
DRA074 Others are being preempted for the pod
  ~ train text=n1 is nominated for it, once batch-3 has ended there
  : The scheduler nominated a node for the pod (status.nominatedNodeName) and preempts pods of a
  : lower priority there. It is tried again when they have ended.
  > Wait until these pods end; a long terminationGracePeriodSeconds or a finalizer delays it.
DRA075 Its group does not fit into one place
  = gang {group} needs {least:pod} in one {topology}; {domain} has room for {fitting}
  ~ train-0 group=train|least=4 pods|topology=rack|domain=rack-2|fitting=3
  : The pods of a PodGroup or CompositePodGroup with a topology constraint run on nodes that have
  : the same value of a label, such as one rack, and no value has room for all of them.
  > Free nodes of the place that is named, lower minCount, or drop the constraint.
  * DRA063
"""


def _read(block: str) -> ReasonCode:
    """Read one code of the table."""
    first, *lines = block.splitlines()
    code, _, title = first.partition(" ")
    parts: dict[str, list[str]] = {mark: [] for mark in "=~:>"}
    there: list[tuple[str, ...]] = []
    for line in lines:
        mark, text = line[2], line[4:]
        if mark in parts:
            parts[mark].append(text)
        elif mark == "/":
            there[-1] += (text,)
        else:
            there.append((text,))
    subject, _, given = " ".join(parts["~"]).partition(" ")
    fields = dict(each.split("=", 1) for each in given.split("|") if each)
    found = ReasonCode(
        code, title, " ".join(parts[":"]), "", " ".join(parts[">"]), tuple(parts["="] or (ANY,)),
        tuple(there),
    )  # fmt: skip
    return replace(found, example=f"{subject} waits: {found.sentence(fields)}")


def _read_all() -> dict[str, ReasonCode]:
    found = {each.code: each for each in map(_read, re.split(r"\n(?=DRA)", _TABLE.strip()))}
    # Lines that are another code's are named by it.
    return {
        name: replace(each, lines=found[each.lines[0][0]].lines)
        if each.lines and each.lines[0][0] in found
        else each
        for name, each in found.items()
    }


CODES: Final = MappingProxyType(_read_all())
"""Every code, by its name."""


def code_text(code: ReasonCode) -> str:
    """Return what a code means, for people."""
    return "\n".join(
        [f"{code.code}: {code.title}", "", code.meaning, "", f"  {code.example}", "", code.remedy]
    )

"""The pods of a random cluster that are on nodes, and what they hold."""

from builders import DRIVER, claim, request
from clusters.draft import (
    EXTENDED,
    HOST,
    NOW,
    ZONE,
    Draft,
    Place,
    affinity,
    ask_extended,
    delete,
    matching,
    mount,
    named_in,
    port,
    rule,
    term,
    use,
)
from dralab.objects.extended_resources import classes_by_resource, synthetic_claim
from dralab.values.json_types import JsonDict


def running(draft: Draft, name: str) -> None:
    node = draft.choice(draft.of("Node"))["metadata"]["name"]
    made = draft.pod(name)
    made["metadata"]["uid"] = f"pod-{name}"
    made["spec"]["nodeName"] = node
    made["status"] = {"phase": "Running"}
    if draft.some("running-anti-affinity", 6):
        affinity(made, "podAntiAffinity", [term(draft.app(), draft.choice([HOST, ZONE]))])
    if draft.some("running-affinity", 8):
        affinity(made, "podAffinity", [term(made["metadata"]["labels"]["app"], ZONE)])
    if draft.some("running-wish", 6):
        kind = draft.choice(["podAffinity", "podAntiAffinity"])
        affinity(made, kind, [draft.wish()], preferred=True)
    if draft.some("running-port", 6):
        port(made, draft.choice([8080, 9090]))
    if draft.some("running-volume", 4):
        mount(made, "single")
    if draft.some("leaving-pod", 15):
        delete(made)
    draft.add(made)
    if draft.some("other-namespace", 8):
        made["metadata"]["namespace"] = "other"
        return
    if draft.some("finished", 15):
        made["status"] = {"phase": "Succeeded"}
    if draft.some("resized", 10):
        # What the kubelet has given it so far counts, too.
        big = {"cpu": "2500m", "memory": "2Gi"}
        given = {"name": "main", "resources": {"requests": big}, "allocatedResources": big}
        made["status"]["containerStatuses"] = [given]
    if draft.some("budget", 8):
        allowed = draft.choice([0, 1])
        spec = {"selector": {"matchLabels": made["metadata"]["labels"]}, "minAvailable": 1}
        status = {"disruptionsAllowed": allowed}
        budget = named_in("PodDisruptionBudget", name, "policy/v1", spec=spec, status=status)
        draft.add(budget)
    _hold(draft, made, node)


def _hold(draft: Draft, made: JsonDict, node: str) -> None:
    """Let a pod have devices of its node."""
    free, shared, parts = (kind.get(node) for kind in (draft.free, draft.shared, draft.parts))
    name = made["metadata"]["name"]
    if shared and draft.some("share-holder", 2):
        wanted = request("r", capacity={"requests": {"memory": "10Gi"}})
        share = {"shareID": f"share-{name}", "consumedCapacity": {"memory": "10Gi"}}
        _give(draft, made, claim(f"{name}-gpus", wanted, namespace="default"), shared[:1], share)
        if draft.one_in(2):
            shared.pop()
    elif parts and draft.some("partition-holder", 2):
        wire = claim(f"{name}-gpus", request("r", "part"), namespace="default")
        _give(draft, made, wire, [parts.pop()])
    elif free and draft.some("extended-holder", 8):
        ask_extended(made, EXTENDED, 1)
        wire, mappings = synthetic_claim(made, classes_by_resource(draft.of("DeviceClass")))
        wire["metadata"] |= {"name": f"{name}-extended", "namespace": "default"}
        wire["metadata"].pop("generateName")
        _give(draft, made, wire, [free.pop(0)], request_name=mappings[0]["requestName"])
        del made["spec"]["resourceClaims"]
        made["status"]["extendedResourceClaimStatus"] = {
            "resourceClaimName": f"{name}-extended",
            "requestMappings": mappings,
        }
    elif free and draft.some("holder", 2):
        count = min(draft.choice([1, 1, 2]), len(free))
        wire = claim(f"{name}-gpus", request("r", count=count), namespace="default")
        _give(draft, made, wire, [free.pop(0) for _ in range(count)])


def _give(
    draft: Draft,
    holder: JsonDict,
    wire: JsonDict,
    taken: list[Place],
    more: JsonDict | None = None,
    request_name: str = "r",
) -> None:
    """Let a claim have devices, and a pod the claim."""
    name, node = holder["metadata"]["name"], holder["spec"]["nodeName"]
    results = [
        {"request": request_name, "driver": DRIVER, "pool": where, "device": device} | (more or {})
        for where, device in taken
    ]
    wire["metadata"]["uid"] = f"claim-{name}"
    there = matching(rule("metadata.name", node), fields="matchFields")
    wire["status"] = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": there,
            "allocationTimestamp": NOW,
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}],
    }
    use(holder, wire["metadata"]["name"])
    draft.add(wire)

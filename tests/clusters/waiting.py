"""The pods of a random cluster that wait: what they ask of a node, and which devices they want."""

from collections.abc import Callable
from typing import Any

from builders import DRIVER, ask, claim, first_of, request
from clusters.draft import (
    DONGLE,
    EXTENDED,
    HOST,
    ZONE,
    Draft,
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
from dralab.values.json_types import JsonDict

Part = Callable[[Draft, JsonDict], None]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
BIG = f'device.attributes["{DRIVER}"].?model.orValue("") == "big"'
VOLUMES = ("zonal", "single", "labelled", "unbound", "provisioned", "local")


def waits(draft: Draft, name: str) -> None:
    """Add a pod that waits, for several causes at once maybe."""
    made = draft.pod(name)
    made["metadata"]["uid"] = f"pod-{name}"
    if draft.some("cannot-preempt", 2):
        made["spec"]["preemptionPolicy"] = "Never"
    for part, (number, apply) in (PARTS | HELD).items():
        if draft.some(part, number):
            apply(draft, made)
    kind = draft.weighted(DEVICES)
    draft.features.add(f"devices-{kind}")
    _want(draft, made, kind)
    draft.add(made)


def group(draft: Draft) -> None:
    """Add pods that start together or not at all, some of them with a device each."""
    count = draft.choice([2, 3])
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    draft.add(named_in("PodGroup", "gang", "scheduling.k8s.io/v1alpha2", spec=spec))
    devices = draft.some("group-devices", 2)
    for number in range(count):
        made = draft.pod(f"gang-{number}")
        made["spec"] |= {"schedulingGroup": {"podGroupName": "gang"}, "priority": 0}
        if devices:
            _want(draft, made, "one")
        draft.add(made)


# --- what a pod asks of a node


def _node_selector(draft: Draft, made: JsonDict) -> None:
    by_disk = [{"disk": kind} for kind in ("ssd", "hdd", "tape")]
    made["spec"]["nodeSelector"] = draft.choice([*by_disk, {HOST: "n0"}, {ZONE: draft.zones[0]}])


def _near_nodes(made: JsonDict) -> JsonDict:
    found: JsonDict = made["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    return found


def _node_affinity(draft: Draft, made: JsonDict) -> None:
    wanted = draft.choice(
        [
            rule("disk", "hdd", operator="NotIn"),
            rule(ZONE, operator="Exists"),
            rule(ZONE, draft.zones[0]),
        ]
    )
    _near_nodes(made)[REQUIRED] = matching(wanted)
    if draft.one_in(3):
        draft.features.add("names-node")
        _near_nodes(made)[REQUIRED] = matching(rule("metadata.name", "n1"), fields="matchFields")


def _node_number(draft: Draft, made: JsonDict) -> None:
    wanted = rule("rack", "1", operator=draft.choice(["Gt", "Lt"]))
    _near_nodes(made)[REQUIRED] = matching(wanted)


def _preferred_nodes(draft: Draft, made: JsonDict) -> None:
    wishes = [
        {"weight": draft.choice([1, 10, 77]), "preference": {"matchExpressions": [wanted]}}
        for wanted in (rule("disk", "ssd"), rule(ZONE, draft.zones[-1]))
    ]
    _near_nodes(made)[PREFERRED] = wishes[: draft.choice([1, 2])]


def _tolerations(draft: Draft, made: JsonDict) -> None:
    made["spec"]["tolerations"] = draft.choice(
        [
            [{"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}],
            [{"key": "team", "operator": "Exists"}, {"key": "slow", "operator": "Exists"}],
            [{"operator": "Exists"}],
            [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
        ]
    )


def _of_pods(kind: str) -> Part:
    def apply(draft: Draft, made: JsonDict) -> None:
        affinity(made, kind, [term(draft.app(), draft.choice([HOST, ZONE]))])

    return apply


def _preferred_pods(draft: Draft, made: JsonDict) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        if draft.one_in(2):
            affinity(made, kind, [draft.wish()], preferred=True)


def _spread(what: str) -> Part:
    def apply(draft: Draft, made: JsonDict) -> None:
        constraint: JsonDict = {
            "maxSkew": draft.choice([1, 1, 2]),
            "topologyKey": draft.choice([HOST, ZONE]),
            "whenUnsatisfiable": what,
            "labelSelector": {"matchLabels": {"app": made["metadata"]["labels"]["app"]}},
        }
        if draft.one_in(3):
            constraint["nodeTaintsPolicy"] = "Honor"
        if draft.one_in(4):
            constraint["nodeAffinityPolicy"] = "Ignore"
        if what == "DoNotSchedule" and draft.one_in(5):
            constraint["minDomains"] = 3
        made["spec"].setdefault("topologySpreadConstraints", []).append(constraint)

    return apply


def _host_port(draft: Draft, made: JsonDict) -> None:
    port(made, draft.choice([8080, 9090]))


def _dongle(draft: Draft, made: JsonDict) -> None:
    ask_extended(made, DONGLE, draft.choice([1, 2, 3]))


def _volume(draft: Draft, made: JsonDict) -> None:
    name = draft.choice([each for each in VOLUMES if f"volume-{each}" not in draft.without])
    draft.features.add(f"volume-{name}")
    mount(made, name)


def _init(draft: Draft, made: JsonDict) -> None:
    first: JsonDict = {"name": "init", "image": "web:1"}
    if draft.one_in(2):
        first["resources"] = {"requests": {"cpu": "1200m"}}
    if draft.one_in(2):
        first["restartPolicy"] = "Always"
    made["spec"]["initContainers"] = [first]


def _pod_level(draft: Draft, made: JsonDict) -> None:
    """The pod itself requests something: of what it names, its containers do not count."""
    made["spec"]["resources"] = {"requests": {"cpu": draft.choice(["700m", "2500m"])}}


def _key_of_own(draft: Draft, made: JsonDict) -> None:
    """A term that means pods with the same value of a label as the pod, or with another one."""
    # A server writes the keys into the selector, and so do we.
    key, where, operator = draft.choice(
        [("matchLabelKeys", ZONE, "In"), ("mismatchLabelKeys", HOST, "NotIn")]
    )
    own = rule("tier", made["metadata"]["labels"]["tier"], operator=operator)
    selector = {"matchExpressions": [own]}
    repelled = {"topologyKey": where, "labelSelector": selector, key: ["tier"]}
    affinity(made, "podAntiAffinity", [repelled])


def _other_namespaces(draft: Draft, made: JsonDict) -> None:
    wanted = term(draft.app(), draft.choice([HOST, ZONE]))
    wanted |= draft.choice([{"namespaces": ["other"]}, {"namespaceSelector": {}}])
    affinity(made, draft.choice(["podAffinity", "podAntiAffinity"]), [wanted])


def _with(**parts: Any) -> Part:
    return lambda _, made: made["spec"].update(parts)


# What a waiting pod may ask for besides devices, and how often one in so many does.
PARTS: dict[str, tuple[int, Part]] = {
    "node-selector": (5, _node_selector),
    "node-affinity": (6, _node_affinity),
    "preferred-nodes": (4, _preferred_nodes),
    "tolerations": (3, _tolerations),
    "affinity": (6, _of_pods("podAffinity")),
    "anti-affinity": (6, _of_pods("podAntiAffinity")),
    "preferred-pods": (4, _preferred_pods),
    "spread": (5, _spread("DoNotSchedule")),
    "soft-spread": (5, _spread("ScheduleAnyway")),
    "host-port": (6, _host_port),
    "dongle": (8, _dongle),
    "volume": (6, _volume),
    "volume-missing": (40, lambda _, made: mount(made, "nowhere")),
    "init": (6, _init),
    "image": (
        4,
        lambda _, made: made["spec"]["containers"].append({"name": "second", "image": "model:1"}),
    ),
    "overhead": (10, _with(overhead={"cpu": "250m", "memory": "120Mi"})),
    "pod-level": (12, _pod_level),
    "key-of-own": (12, _key_of_own),
    "other-namespaces": (10, _other_namespaces),
    "node-number": (12, _node_number),
    # More important than all others: it may preempt them.
    "urgent": (6, _with(priority=1000)),
}
# Why a pod is not tried at all.
HELD: dict[str, tuple[int, Part]] = {
    "gated": (20, _with(schedulingGates=[{"name": "example.com/wait"}])),
    "other-scheduler": (25, _with(schedulerName="another")),
    "deleted": (30, lambda _, made: delete(made)),
}

# --- devices

DEVICES = {
    "none": 8,
    "one": 5,
    "two": 3,
    "matched": 2,
    "distinct": 1,
    "model": 2,
    "first-available": 2,
    "all": 1,
    "all-parts": 1,
    "capacity": 2,
    "shares": 1,
    "two-claims": 2,
    "template": 2,
    "quota": 1,
    "extended": 3,
    "partition": 2,
    "network": 2,
    "no-class": 1,
    "no-claim": 1,
    "claim-deleted": 1,
    "claim-held": 2,
    "bad-selector": 1,
    "admin": 1,
}
# The requests and constraints of the claim, where one claim is all there is to it.
CLAIMS: dict[str, tuple[list[JsonDict], JsonDict]] = {
    "one": ([request("r")], {}),
    "two": ([request("r", count=2)], {}),
    "matched": ([request("r", count=2), request("s")], {"match": f"{DRIVER}/numa"}),
    "distinct": ([request("r", count=2)], {"distinct": f"{DRIVER}/model"}),
    "model": ([request("r", "gpu", BIG)], {}),
    "first-available": ([first_of("r", big=ask("gpu", BIG, count=2), small=ask("gpu"))], {}),
    "all": ([request("r", count="All")], {}),
    "all-parts": ([request("r", "part", count="All")], {}),
    "capacity": ([request("r", capacity={"requests": {"memory": "30Gi"}})], {}),
    # Two shares, of one device or of two.
    "shares": ([request("r", count=2, capacity={"requests": {"memory": "20Gi"}})], {}),
    "network": ([request("r", "net")], {}),
    "no-class": ([request("r", "nothing")], {}),
    "claim-deleted": ([request("r")], {}),
    "bad-selector": ([request("r", "gpu", f'device.attributes["{DRIVER}"].none > 1')], {}),
    "admin": ([request("r", adminAccess=True)], {}),
}


def _want(draft: Draft, made: JsonDict, kind: str) -> None:
    """Let a pod ask for devices in one of the ways of `DEVICES`."""
    name = made["metadata"]["name"]
    match kind:
        case "none":
            pass
        case "extended":
            ask_extended(made, EXTENDED, draft.choice([1, 1, 2]))
        case "no-claim":
            use(made, "nothing")
        case "claim-held":
            _use_held(draft, made)
        case "two-claims":
            names = [f"{name}-{number}" for number in (1, 2)]
            draft.add(*(claim(each, request("r"), namespace="default") for each in names))
            use(made, *names)
        case "template" | "quota":
            _template(draft, made, is_made=kind == "template")
        case "partition":
            wanted = request("r", "part", count=draft.choice([1, 2]))
            draft.add(claim(f"{name}-gpus", wanted, namespace="default"))
            use(made, f"{name}-gpus")
        case _:
            requests, more = CLAIMS[kind]
            wire = claim(f"{name}-gpus", *requests, namespace="default", **more)
            if kind in {"one", "two"}:
                _tolerate(draft, wire)
            if kind == "claim-deleted":
                delete(wire)
            draft.add(wire)
            use(made, f"{name}-gpus")


def _tolerate(draft: Draft, wire: JsonDict) -> None:
    """Let a claim tolerate a taint of devices."""
    if draft.some("device-toleration", 5):
        (asked,) = wire["spec"]["devices"]["requests"]
        asked["exactly"] |= {"tolerations": [{"key": "faulty", "operator": "Exists"}]}


def _template(draft: Draft, made: JsonDict, *, is_made: bool) -> None:
    """Let a pod use a claim of a template: it is made, or a quota is in the way."""
    name = made["metadata"]["name"]
    wire = claim(f"{name}-made", request("r"), namespace="default")
    _tolerate(draft, wire)
    draft.add(named_in("ResourceClaimTemplate", f"{name}-gpus", "resource.k8s.io/v1"))
    draft.objects[-1]["spec"] = {"spec": wire["spec"]}
    made["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimTemplateName": f"{name}-gpus"}]
    if not is_made:
        limit = draft.choice(
            ["count/resourceclaims.resource.k8s.io", "gpu.deviceclass.resource.k8s.io/devices"]
        )
        hard = {"hard": {limit: "0"}}
        status = hard | {"used": {limit: "0"}}
        draft.add(named_in("ResourceQuota", f"{name}-quota", "v1", spec=hard, status=status))
        return
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"pod-{name}"}
    wire["metadata"]["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    wire["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "d"}
    statuses = [{"name": "d", "resourceClaimName": f"{name}-made"}]
    made["status"] = {"resourceClaimStatuses": statuses}
    draft.add(wire)


def _use_held(draft: Draft, made: JsonDict) -> None:
    """Let a pod use a claim that a pod on a node has; one of its own where there is none."""
    held = [
        item["metadata"]["name"]
        for item in draft.of("ResourceClaim")
        if item["metadata"]["name"].startswith("run-")
        and not item["metadata"]["name"].endswith("-extended")
    ]
    if not held:
        _want(draft, made, "one")
        return
    draft.features.add("allocated-claim")
    use(made, draft.choice(held))

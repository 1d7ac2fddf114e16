"""What must hold at the end of trials of dralab's own parts, beside what every trial must."""


def of_kind(objects, kind):
    """Return the objects of a kind."""
    return [obj for obj in objects if obj["kind"] == kind]


def tainted_devices_are_left(objects, _history):
    """Only who tolerates a taint has a device of the tainted pool."""
    for claim in of_kind(objects, "ResourceClaim"):
        name = claim["metadata"]["name"]
        status = claim.get("status") or {}
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            if result["pool"] == "node-0" and status.get("reservedFor") and name != "tolerant":
                return f"{name} is in use on {result['pool']}/{result['device']}"
    names = {pod["metadata"]["name"] for pod in of_kind(objects, "Pod")}
    if "tolerant" not in names:
        return "the tolerant pod was evicted"
    return "the patient pod was not evicted" if "patient" in names else ""


def pods_left_their_nodes(objects, _history):
    """Who does not tolerate a taint for as long as it held is gone; the others are not."""
    names = {pod["metadata"]["name"] for pod in of_kind(objects, "Pod")}
    wanted = {"waiting", "faithful", "repairer"}
    return "" if names == wanted else f"left are {sorted(names)}, not {sorted(wanted)}"


def classes_in_use_remain(objects, _history):
    """A class of volumes' attributes is there as long as a claim names it."""
    there = {each["metadata"]["name"] for each in of_kind(objects, "VolumeAttributesClass")}
    for claim in of_kind(objects, "PersistentVolumeClaim"):
        named = claim["spec"].get("volumeAttributesClassName")
        if named and named not in there:
            return f"{claim['metadata']['name']} names {named}, which is gone"
    return ""


def volumes_and_claims_agree(objects, _history):
    """A bound claim and its volume name each other, and no volume is bound to a claim that went."""
    claims = {
        claim["metadata"]["uid"]: claim for claim in of_kind(objects, "PersistentVolumeClaim")
    }
    volumes = {each["metadata"]["name"]: each for each in of_kind(objects, "PersistentVolume")}
    for uid, claim in claims.items():
        name = claim["spec"].get("volumeName")
        if name and volumes[name]["spec"].get("claimRef", {}).get("uid") != uid:
            return f"{name} does not belong to claim {claim['metadata']['name']}"
    for name, volume in volumes.items():
        held = volume["spec"].get("claimRef")
        bound = volume["status"]["phase"] == "Bound"
        if bound != (held is not None and held["uid"] in claims):
            return f"{name} is {volume['status']['phase']}, its claim {held}"
    return ""


def addresses(found):
    """Return the addresses of Endpoints: those that are ready, those that are not."""
    subsets = found.get("subsets") or ()
    return tuple(
        sorted(item["ip"] for subset in subsets for item in subset.get(name) or ())
        for name in ("addresses", "notReadyAddresses")
    )


def endpoints_are_the_ready_pods(objects, _history):
    """The Endpoints of a Service have the addresses of the pods that it selects."""
    pods = sorted(pod["status"]["podIP"] for pod in of_kind(objects, "Pod"))
    found = {each["metadata"]["name"]: addresses(each) for each in of_kind(objects, "Endpoints")}
    wanted = {name: (pods, []) for name in ("headless", "web")}
    return "" if found == wanted else f"Endpoints are {found}, not {wanted}"


def slices_are_the_endpoints(objects, _history):
    """The mirrored slices of Endpoints have their addresses, each once."""
    wanted = {
        each["metadata"]["name"]: addresses(each)
        for each in of_kind(objects, "Endpoints")
        if each["metadata"]["name"] in {"by-hand", "selective"}
    }
    found = {}
    for each in of_kind(objects, "EndpointSlice"):
        ready, waiting = found.setdefault(
            each["metadata"]["labels"]["kubernetes.io/service-name"], ([], [])
        )
        for item in each["endpoints"]:
            (ready if item["conditions"]["ready"] else waiting).extend(item["addresses"])
    found = {name: (sorted(ready), sorted(waiting)) for name, (ready, waiting) in found.items()}
    return "" if found == wanted else f"the slices have {found}, not {wanted}"


def one_job_a_minute(objects, _history):
    """Each CronJob that is left has its last job, and none that is older than its limits allow."""
    jobs = {}
    for job in of_kind(objects, "Job"):
        jobs.setdefault(job["metadata"]["ownerReferences"][0]["name"], []).append(job)
    for cron_job in of_kind(objects, "CronJob"):
        name = cron_job["metadata"]["name"]
        if not jobs.get(name) or len(jobs[name]) > 2:
            return f"{name} has {len(jobs.get(name, ()))} jobs"
        active = {each["name"] for each in (cron_job.get("status") or {}).get("active") or ()}
        running = {j["metadata"]["name"] for j in jobs[name] if "completionTime" not in j["status"]}
        if active != running:
            return f"{name} says that {sorted(active)} are active; {sorted(running)} are"
    return ""


def addresses_are_given_once(objects, _history):
    """No two Services have one address, and who has none waits because all are taken."""
    held = [
        item["ip"]
        for each in of_kind(objects, "Service")
        for item in ((each.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    ]
    return "" if sorted(held) == ["10.9.0.1", "10.9.0.2"] else f"given are {sorted(held)}"


def evictions_are_of_their_requests(objects, _history):
    """Each request is of a pod that left, and has the one eviction of that pod, which says so."""
    pods = sorted(pod["metadata"]["name"] for pod in of_kind(objects, "Pod"))
    if pods != ["spared", "staying"]:
        return f"left are {pods}"
    asked, evicted = (
        sorted(each["spec"]["target"]["pod"]["name"] for each in of_kind(objects, kind))
        for kind in ("EvictionRequest", "Eviction")
    )
    if not asked == evicted == ["guarded", "plain", "slow"]:
        return f"asked for are {asked}, evicted {evicted}"
    for each in (*of_kind(objects, "EvictionRequest"), *of_kind(objects, "Eviction")):
        said = {c["type"]: (c["status"], c["reason"]) for c in each["status"]["conditions"]}
        if said.get("TargetEvicted") != ("True", "PodDeleted"):
            return f"{each['kind']} {each['metadata']['name']} says {said}"
    states = [e["status"]["targetResponders"][-1]["state"] for e in of_kind(objects, "Eviction")]
    return "" if set(states) == {"Completed"} else f"the last responders are {states}"

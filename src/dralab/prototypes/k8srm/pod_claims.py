"""The claims of a pod by name, and whether the pod may start."""

from dralab.objects.metadata import key_of, owner_uids, status_of, uid_of
from dralab.prototypes.claim_names import suffix
from dralab.prototypes.k8srm import reading
from dralab.prototypes.k8srm.claim_forms import normalized_claim_spec
from dralab.prototypes.k8srm.model import ClaimSpec, PodEntry
from dralab.values.json_types import JsonDict, JsonObject


def claim_name(entry: PodEntry, pod: str, namespace: str) -> str:
    """Return the name of the claim that an entry of a pod stands for.

    >>> claim_name(PodEntry(name="gpu", how="existing", source="shared"), "p", "default")
    'shared'
    """
    if entry.how == "existing":
        return entry.source
    return "-".join(part for part in (pod, entry.name, suffix(namespace, pod)) if part)


def claim_names(pod: JsonObject) -> list[str]:
    """Return the names of all claims of a pod."""
    read = reading.read_pod(pod)
    return [claim_name(entry, read.name, read.namespace) for entry in read.entries]


def generated_claims(pod: JsonObject) -> dict[str, bool]:
    """Return the names of a pod's claims, and whether each was made for the pod alone."""
    read = reading.read_pod(pod)
    return {
        claim_name(entry, read.name, read.namespace): entry.how != "existing"
        for entry in read.entries
    }


def uses_of(pod: JsonObject, container: str) -> list[tuple[str, str]]:
    """Return the claims that a container uses, each with one instance of it or an empty text."""
    read = reading.read_pod(pod)
    names = {entry.name: claim_name(entry, read.name, read.namespace) for entry in read.entries}
    wanted = read.containers.get(container, ())
    if read.whole:
        return [(claim, instance) for claim in names.values() for instance in wanted]
    return [(names[entry], "") for entry in wanted if entry in names]


def problem(pod: JsonObject, claim: JsonObject, *, generated: bool) -> str:
    """Return the reason that a claim keeps its pod from starting; empty if it does not."""
    key, status = key_of(pod), status_of(claim)
    name = f"DeviceClaim {key_of(claim).name}"
    if generated and uid_of(pod) not in owner_uids(claim):
        return f"{name} was not created for pod {key.name} (the pod is not its owner)"
    if not status.get("allocations"):
        return f"{name} is not allocated"
    if key.name not in (status.get("podNames") or ()):
        return f"{name} does not list pod {key.name} in status.podNames"
    return ""


def results(claim: JsonObject) -> list[JsonDict]:
    """Return an allocated claim's devices for a node, with the instance that each is for.

    A status does not say it. Where numbers of devices are fixed, their order does; else a device
    is for all instances.
    """
    key, given = key_of(claim), status_of(claim).get("allocations") or ()
    spec = normalized_claim_spec(claim["spec"], key.name, "spec", [])
    names = _instances(reading.read_claim_spec(spec, key.namespace), len(given))
    return [
        {"pool": part["devicePoolName"], "deviceName": part.get("deviceName") or ""}
        | ({"requestName": name} if name else {})
        for part, name in zip(given, names, strict=True)
    ]


def _instances(spec: ClaimSpec, total: int) -> list[str]:
    if len(spec.instances) == 1:
        return [spec.instances[0].name] * total
    found: list[str] = []
    for instance in spec.instances:
        for ways in (*([each] for each in instance.all_of), instance.one_of):
            counts = {
                0 if way.everything or (way.totals and way.maximum not in {None, way.minimum})
                else way.minimum
                for way in ways
            }  # fmt: skip
            if len(counts) > 1 or 0 in counts:
                return [""] * total
            found += [instance.name] * sum(counts)
    return found if len(found) == total else [""] * total

"""Names and numbers as people write them, and names that are nearly equal."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from dralab.allocation.problem import Attribute, DeviceId, DevicePath
from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.objects.claims import pod_claims
from dralab.objects.device_taints import DeviceTaint
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import controller_of, full_key, is_deleting, spec_of, status_of
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import Number, parse_any, render

MOST_NAMES: Final = 3
NEAR: Final = 0.6
SIGNS: Final = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠"}


def listed(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Return a few names and how many more there are.

    >>> listed(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    every = list(names)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])} and {len(every) - most} more"


def counted(count: int, word: str) -> str:
    """Return a number of things.

    >>> counted(1, "device"), counted(2, "class")
    ('1 device', '2 classes')
    """
    return f"{count} {word if count == 1 else plural(word)}"


def plural(word: str) -> str:
    """Return the plural of a word."""
    return f"{word}es" if word.endswith(("s", "x")) else f"{word}s"


def of_class(count: int, name: str) -> str:
    """Return a number of devices of a class.

    >>> of_class(1, "gpu"), of_class(3, "gpu"), of_class(3, "gpu.example.com")
    ('1 gpu', '3 gpus', '3 devices of class gpu.example.com')
    """
    if not name:
        return counted(count, "device")
    if "." in name:
        return f"{counted(count, 'device')} of class {name}"
    return counted(count, name)


def amount(number: Number) -> str:
    """Return a number as a person would write it.

    >>> amount(40 * 2**30), amount(1500)
    ('40Gi', '1500')
    """
    if number.denominator == 1 and number >= 1 << 20 and number % (1 << 20) == 0:
        return render(number, "BinarySI")
    return str(number) if number.denominator == 1 else render(number)


def shown_value(value: Attribute | Number | str) -> str:
    """Return the value of an attribute or a capacity, without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Attribute) and value.type == "quantity":  # of older generations
        return amount(parse_any(value.values[0]))
    if isinstance(value, Attribute):
        shown = [
            "true" if item is True else "false" if item is False else str(item)
            for item in value.values
        ]
        return f"[{', '.join(shown)}]" if value.listed else shown[0] if shown else ""
    return amount(value)


def device_name(device: DeviceId, node: str = "") -> str:
    """Return a device as people look for it: `node/device`, or with its pool.

    >>> device_name(DeviceId("gpu.example.com", "node-a", "gpu-1"), "node-a")
    'node-a/gpu-1'
    """
    pool = device.pool_shown
    return f"{node if node and pool.startswith(node) else pool}/{device.device}"


def taint_text(taint: DeviceTaint) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def short_path(path: DevicePath) -> str:
    """Return the short name of a path: its last part.

    >>> short_path(("attributes", "gpu.example.com", "model")), short_path(("driver",))
    ('model', 'driver')
    """
    return path[-1] if path else "device"


def similar(word: str, known: Iterable[str]) -> str:
    """Return the most similar known word, empty if none is near.

    >>> similar("hopper", ["Hopper", "Ada"]), similar("gpux", ["gpu", "nic"]), similar("x", ["y"])
    ('Hopper', 'gpu', '')
    """
    every = [each for each in dict.fromkeys(known) if each != word]
    lowered = {each.lower(): each for each in reversed(every)}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=NEAR)
    return lowered[found[0]] if found else ""


def joined(names: Sequence[str], word: str = "and") -> str:
    """Return names as an enumeration.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def shortened(name: str) -> str:
    """Return the name of an object without its namespace where that is `default`."""
    return name.removeprefix("default/")


LAST: Final = 9


@dataclass(frozen=True, slots=True, order=True)
class HolderEnd:
    """When a pod ends: the smaller, the sooner. `text` says how that is known; empty if unknown.

    A pod that is being deleted comes first, then one with a deadline, then one that runs to its
    end; those that are started again for ever come last.
    """

    rank: int = LAST
    when: str = ""
    text: str = ""


UNKNOWN: Final = HolderEnd()


def end_of(pod: JsonObject) -> HolderEnd:
    """Return when a pod that runs will end.

    >>> spec, status = {"activeDeadlineSeconds": 3600}, {"startTime": "2026-11-01T08:00:00Z"}
    >>> end_of({"metadata": {}, "spec": spec, "status": status}).text
    'by 2026-11-01T09:00:00Z'
    """
    spec, status = spec_of(pod), status_of(pod)
    if is_deleting(pod):
        return HolderEnd(0, "", "it is being deleted")
    deadline, start = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline and start:
        when = rfc3339(from_rfc3339(start) + int(deadline) * SECOND)
        return HolderEnd(1, when, f"by {when}")
    owner: Mapping[str, object] = controller_of(pod) or {}
    if owner.get("kind") == "Job":
        return HolderEnd(2, "", f"it belongs to Job {owner.get('name')}")
    if spec.get("restartPolicy") in {"Never", "OnFailure"}:
        return HolderEnd(2, "", "it runs once")
    return UNKNOWN


def holders_of(cluster: Snapshot) -> dict[str, str]:
    """Return the pods that use claims, by the claims' names in explanations."""
    found: dict[str, str] = {}
    for claim in cluster.claims.values():
        for consumer in status_of(claim).get("reservedFor") or ():
            if consumer.get("resource") == "pods":
                found.setdefault(
                    claim_name(claim), shortened(f"{full_key(claim)[0]}/{consumer['name']}")
                )
    for _, user in cluster.users():
        for claim in (*user.claims, *user.allocated):
            found.setdefault(claim_name(claim), shortened(f"{user.namespace}/{user.name}"))
    return found


def ends_of(cluster: Snapshot) -> dict[str, HolderEnd]:
    """Return when the pods that use claims end, if known, by the claims' names in explanations."""
    found: dict[str, HolderEnd] = {}
    for pod, user in cluster.users():
        end = end_of(pod)
        if end != UNKNOWN:
            found |= dict.fromkeys((claim_name(claim) for claim in user.allocated), end)
    return found


def templates_of(cluster: Snapshot) -> dict[str, str]:
    """Return the templates of claims, by the claims' names in explanations."""
    found: dict[str, str] = {}
    for pod, user in cluster.users():
        entries = spec_of(pod).get("resourceClaims") or ()
        if not any(entry.get("resourceClaimTemplateName") for entry in entries):
            continue
        made = {claim["metadata"]["name"]: claim for claim in (*user.claims, *user.allocated)}
        for entry in pod_claims(pod):
            # The claim of a PodGroup is named after the group.
            ends = [each for each in made if each.endswith(f"-{entry.entry}")]
            name = entry.made or (ends[0] if ends else "")
            if entry.template and name in made:
                found[claim_name(made[name])] = f"{user.namespace}/{entry.template}"
    return found


def extended_of(cluster: Snapshot) -> dict[str, tuple[str, str]]:
    """Return, by claim for extended resources, the pod and the field that ask for them."""
    found: dict[str, tuple[str, str]] = {}
    for pod, user in cluster.users():
        for claim in (*user.claims, *user.allocated):
            if SYNTHETIC in (claim["metadata"].get("annotations") or {}):
                field = resource_fields(pod, cluster.provided)[0]
                found[claim_name(claim)] = f"{user.namespace}/{user.name}", field
    return found


def claim_name(claim: JsonDict) -> str:
    """Return the name of a claim as problems have it: with its namespace where one is written."""
    metadata = claim["metadata"]
    name: str = metadata["name"]
    return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name


def resource_fields(pod: JsonObject, provided: Container[str]) -> list[str]:
    """Return where a pod asks for resources that devices provide; at least one place."""
    return [
        f"spec.containers[{number}].resources.{part}[{resource}]"
        for number, container in enumerate(spec_of(pod).get("containers") or ())
        for part in ("requests", "limits")
        for resource in (container.get("resources") or {}).get(part) or ()
        if resource in provided
    ] or ["spec.containers"]


def volume_field(pod: JsonObject, claims: Sequence[str]) -> tuple[str, str]:
    """Return where a pod names the first of some volume claims, and the claim."""
    for number, volume in enumerate(spec_of(pod).get("volumes") or ()):
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if name in claims:
            return f"spec.volumes[{number}].persistentVolumeClaim.claimName", str(name)
    return "", claims[0] if claims else ""

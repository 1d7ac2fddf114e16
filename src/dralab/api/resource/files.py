"""resource.k8s.io objects in files: every rule of a server, and those that span objects.

A server finds a device that is twice in a pool, or a counter that is not there, only when it
allocates; in a file they are mistakes, told with the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dralab.api.fields import FieldError, duplicate, invalid_value, not_found
from dralab.api.manifests import (
    CheckedObject,
    Manifest,
    ManifestProblem,
    Manifests,
    as_stored,
    is_stored,
    located,
)
from dralab.api.resource.conversion import convert, errors_in, hub_version
from dralab.api.resource.defaulting import default
from dralab.api.resource.features import ALL, Features
from dralab.api.resource.rules import ExpressionCompiler, validate_create, validate_update
from dralab.api.resource.structure import problems
from dralab.api.resource.types import GROUP, KINDS
from dralab.values.json_types import JsonDict
from dralab.values.names import label_problems, subdomain_problems
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """Checks one object of resource.k8s.io in any version and turns it into the hub form."""

    now: str
    features: Features = ALL
    expressions: ExpressionCompiler | None = None

    def __call__(self, given: JsonDict) -> CheckedObject | None:
        """Return the stored form and all errors, or None for another group."""
        group, _, version = str(given.get("apiVersion", "")).partition("/")
        if group != GROUP:
            return None
        kind = str(given.get("kind", ""))
        if kind not in KINDS or version not in KINDS[kind]:
            if is_stored(given) and kind not in KINDS:
                return None
            known = KINDS.get(kind)
            text = (
                f"{kind} has the versions {', '.join(known)}"
                if known
                else f"{GROUP} has the kinds {', '.join(KINDS)}"
            )
            field = "apiVersion" if known else "kind"
            return CheckedObject(given, [invalid_value(field, given[field], text)])
        shape, unknown = as_stored(given, problems(version, kind, given))
        if shape:
            # Wrong types would mislead the rules: they come first, alone.
            return CheckedObject(given, shape, unknown)
        if is_stored(given):
            # A server has defaulted and validated it, perhaps by newer rules.
            return CheckedObject(convert(given, hub_version(kind)), (), unknown)
        stored = default(convert(given, hub_version(kind)), now=self.now)
        errors = [*_name_errors(given), *validate_create(stored, self.features, self.expressions)]
        if kind == "ResourceClaim" and stored.get("status"):
            empty = stored | {"status": {}}
            errors += validate_update(stored, empty, "status", self.features)
        return CheckedObject(stored, errors_in(version, kind, errors))


def add_pool_problems(read: Manifests) -> None:
    """Add the errors across objects: duplicate names, and contradictory pools.

    Pools are looked at in their newest generation, as allocators do. A pool that a cluster has is
    as its driver published it, perhaps in the midst of a change. Of a stored object that was
    gathered twice, the newer copy remains.
    """
    if read.is_snapshot:
        return
    read.objects = _newest_copies(read.objects)
    found = _repeated(read.objects)
    pools: dict[tuple[str, str], list[Manifest]] = {}
    for item in read.of_kind("ResourceSlice", GROUP):
        if is_stored(item.object):
            continue
        spec = item.object["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(item)
    for slices in pools.values():
        newest = max(item.object["spec"]["pool"].get("generation", 0) for item in slices)
        current = [
            item for item in slices if item.object["spec"]["pool"].get("generation", 0) == newest
        ]
        found += _pool_problems(current)
    read.problems += located(found)


def _newest_copies(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return objects without older copies of the same stored object; order is kept."""
    newest: dict[str, Manifest] = {}
    for item in objects:
        if is_stored(item.object):
            uid = item.object["metadata"]["uid"]
            known = newest.setdefault(uid, item)
            if _revision(item) > _revision(known):
                newest[uid] = item
    return [
        item
        for item in objects
        if not is_stored(item.object) or newest[item.object["metadata"]["uid"]] is item
    ]


def _revision(item: Manifest) -> int:
    text = str(item.object["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0


def _repeated(objects: Sequence[Manifest]) -> list[ManifestProblem]:
    found: list[ManifestProblem] = []
    first: dict[tuple[str, str, str, str], Manifest] = {}
    for item in objects:
        key = (item.group, item.kind, item.namespace, item.name)
        earlier = first.setdefault(key, item)
        if earlier is not item:
            error = duplicate("metadata.name", item.name)
            text = f"{error}: the same object is in {earlier.origin}"
            found.append(ManifestProblem(item.origin, item.title, text, error.field))
    return found


def _pool_problems(slices: Sequence[Manifest]) -> list[ManifestProblem]:
    found: list[ManifestProblem] = []
    counts = {item.object["spec"]["pool"]["resourceSliceCount"] for item in slices}
    sets: dict[str, Mapping[str, Any]] = {}
    devices: dict[str, Manifest] = {}

    def tell(item: Manifest, error: FieldError, more: str = "") -> None:
        found.append(ManifestProblem(item.origin, item.title, f"{error}{more}", error.field))

    for item in slices:
        for index, counter_set in enumerate(item.object["spec"].get("sharedCounters") or ()):
            if counter_set["name"] in sets:
                tell(item, duplicate(f"spec.sharedCounters[{index}].name", counter_set["name"]))
            sets[counter_set["name"]] = counter_set["counters"]
    for item in slices:
        for index, device in enumerate(item.object["spec"].get("devices") or ()):
            path = f"spec.devices[{index}]"
            earlier = devices.setdefault(device["name"], item)
            if earlier is not item:
                more = f": the pool has this device in {earlier.title} too"
                tell(item, duplicate(f"{path}.name", device["name"]), more)
            if len(slices) < max(counts):
                continue  # the counters may be in a slice that is not here
            for number, used in enumerate(device.get("consumesCounters") or ()):
                here = f"{path}.consumesCounters[{number}]"
                known = sets.get(used["counterSet"])
                if known is None:
                    more = f": the pool has the counter sets {_names(sets)}"
                    tell(item, not_found(f"{here}.counterSet", used["counterSet"]), more)
                    continue
                for name in used["counters"]:
                    if name not in known:
                        more = f": the counter set has {_names(known)}"
                        tell(item, not_found(f"{here}.counters", name), more)
    return found


def _names(of: Mapping[str, Any]) -> str:
    return ", ".join(sorted(of)) or "none"


def _name_errors(given: JsonDict) -> list[FieldError]:
    metadata = given["metadata"]
    found = [
        invalid_value("metadata.name", metadata["name"], text)
        for text in subdomain_problems(metadata["name"])
    ]
    namespace = metadata.get("namespace")
    if namespace:
        found += [
            invalid_value("metadata.namespace", namespace, text)
            for text in label_problems(namespace)
        ]
    return found

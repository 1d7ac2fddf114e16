"""The inventory for questions about devices: the objects of files and of a cluster.

A cluster is only read. What files add is taken as applied to it: an object of the same name
replaces the cluster's. How a cluster is reached, and how mistakes are shown, is left to callers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from dralab.allocation.cel_compiler import compiled
from dralab.api.manifests import Check, Manifests, load, unknown_fields
from dralab.api.resource.conversion import hub_version
from dralab.api.resource.files import ResourceCheck, add_pool_problems
from dralab.api.resource.structure import problems
from dralab.api.resource.types import GROUP
from dralab.api.standard_checks import standard_check
from dralab.kernel.clock import Clock, rfc3339
from dralab.lab.progress import progress_line
from dralab.objects.claims import claim_names, claims_for_scheduler, pod_claims
from dralab.objects.metadata import key_of, spec_of, uid_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict


def checked_manifests(
    files: Sequence[str], clock: Clock, stdin: Callable[[], bytes] | None = None
) -> Manifests:
    """Return the objects of files, checked by the rules of their kinds.

    Where it takes long, a line on a terminal says how far it is.
    """
    checks: list[Check] = [
        ResourceCheck(now=rfc3339(clock.now()), expressions=compiled),
        standard_check,
    ]
    with progress_line("reading") as line:

        def tell(number: int, objects: int) -> None:
            line.show(f"{number:,} files, {objects:,} objects")

        read = load(files, checks, stdin=stdin, progress=tell)
    add_pool_problems(read)
    return read


def lacking(objects: Sequence[JsonDict]) -> str:
    """Return the kinds that a dump lacks, without which used devices look free; empty if complete.

    >>> pod = {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "n"}}
    >>> pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    >>> lacking([pod]).partition(":")[0]
    'half a dump'
    >>> lacking([pod, {"kind": "ResourceClaim"}])
    ''
    """
    kinds = {item.get("kind") for item in objects}
    if "ResourceClaim" in kinds:
        return ""
    for pod in objects:
        runs = pod.get("kind") == "Pod" and uid_of(pod) and spec_of(pod).get("nodeName")
        # A claim that is not for the scheduler is another API's.
        of_today = runs and claims_for_scheduler(pod) == pod_claims(pod)
        if of_today and not is_finished(pod) and (names := claim_names(pod)):
            key = key_of(pod)
            return (
                f"half a dump: pod {key.namespace or 'default'}/{key.name} runs with claim "
                f"{names[0]}, but the input has no ResourceClaim: add them "
                "(kubectl get resourceclaims -A -o yaml)"
            )
    return ""


def newer_fields(objects: Sequence[JsonDict]) -> Counter[tuple[str, str]]:
    """Count the fields of a cluster's device API that are unknown here.

    Of the slices of a driver, which are many and alike, one is looked at.
    """
    drivers: set[str] = set()
    found: Counter[tuple[str, str]] = Counter()
    for item in objects:
        if not item["apiVersion"].startswith(f"{GROUP}/"):
            continue
        if item["kind"] == "ResourceSlice":
            driver = str(spec_of(item).get("driver"))
            if driver in drivers:
                continue
            drivers.add(driver)
        found += unknown_fields(item, problems(hub_version(item["kind"]), item["kind"], item))
    return found


def merged(cluster: Iterable[JsonDict], applied: Sequence[JsonDict]) -> list[JsonDict]:
    """Return objects of a cluster as if others had been applied to it.

    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    >>> [found.get("spec") for found in merged([node], [node | {"spec": {"unschedulable": True}}])]
    [{'unschedulable': True}]
    """
    by_name = {_identity(item): item for item in applied}
    found = [by_name.pop(_identity(item), item) for item in cluster]
    return [*found, *by_name.values()]


def _identity(item: JsonDict) -> tuple[str, str, str, str]:
    group = str(item.get("apiVersion", "")).rpartition("/")[0]
    metadata, kind = item["metadata"], item["kind"]
    namespace = metadata.get("namespace") or ""
    return group, kind, "" if namespace == "default" else namespace, metadata["name"]

"""`dralab schedule --kubeconfig`: read objects from a server and write results back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from dralab.api.status import ApiError
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.objects.claims import has_device_claims, pod_claims
from dralab.objects.metadata import annotations_of, spec_of, status_of
from dralab.prototypes.evolution import kinds as evolution
from dralab.prototypes.findings import NormalizedDocument, identity
from dralab.prototypes.k8srm import kinds as k8srm
from dralab.prototypes.placement import Generation, PlacedPod
from dralab.runtime.client import Client, Resource, amend, serves
from dralab.runtime.reading import ReadingError, listed
from dralab.runtime.resources import (
    DEVICE_POOLS,
    EVOLUTION_PODS,
    EVOLUTION_POOLS,
    NODES,
    PODS,
    SLICES,
)
from dralab.values.json_types import JsonDict

TODAY: Final = (
    {"kind": "DeviceClass", "plural": "deviceclasses", "namespaced": False},
    {"kind": "ResourceSlice", "plural": "resourceslices", "namespaced": False},
    {"kind": "DeviceTaintRule", "plural": "devicetaintrules", "namespaced": False},
    {"kind": "ResourceClaim", "plural": "resourceclaims", "namespaced": True},
    {"kind": "ResourceClaimTemplate", "plural": "resourceclaimtemplates", "namespaced": True},
)
KINDS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "k8srm": k8srm.KINDS,
    "evolution": evolution.KINDS,
    "v1": TODAY,
}
ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


# What a server lists that serves a generation, the oldest first.
SIGNS: Final = {"evolution": EVOLUTION_POOLS, "k8srm": DEVICE_POOLS, "v1": SLICES}


def served(client: Client) -> list[str]:
    """Return the generations that a server serves and lets this user list, the oldest first."""
    return [name for name, resource in SIGNS.items() if _may_list(client, resource)]


def chosen_for_scheduling(client: Client) -> str:
    """Return the generation whose pods wait for `dralab schedule` on a server.

    Where pods of two of them wait, the other one is named on stderr. Today's pods have a scheduler
    that runs: theirs is the last choice.
    """
    found = served(client)
    older = [name for name in found if name != "v1"]
    waiting = [name for name in older if len(older) > 1 and _waits(client, name)]
    for name in waiting[1:]:
        echo(f"pods of {name} wait too: add --api {name}", err=True)
    return next(iter([*waiting, *older, *found]), "k8srm")


def _may_list(client: Client, resource: Resource) -> bool:
    try:
        return serves(client, resource)
    except ApiError:
        return False  # authorization comes first: what does not exist is forbidden, too


def _waits(client: Client, name: str) -> bool:
    resource = EVOLUTION_PODS if name == "evolution" else PODS
    try:
        pods = client.list(resource).items
    except ApiError:
        return False
    return any(
        not spec_of(pod).get("nodeName") and (name == "evolution" or has_device_claims(pod))
        for pod in pods
    )


class Server:
    """The objects of one generation on a server."""

    def __init__(self, client: Client, generation: Generation) -> None:
        self.client = client
        self.generation = generation
        self.refused: list[NormalizedDocument] = []
        group, _, version = generation.api_version.partition("/")
        self.resources = {
            kind["kind"]: Resource(group, version, kind["plural"], kind["namespaced"])
            for kind in KINDS[generation.name]
        }

    def objects(self) -> list[JsonDict]:
        """Return all objects of the generation; invalid ones are reported, and in `refused`."""
        found: list[JsonDict] = []
        for kind, resource in self.resources.items():
            found += self._all(resource, kind)
        found += self._all(NODES, "Node")
        if "Pod" not in self.resources:
            found += self._all(PODS, "Pod")
        found += self._configs(found)
        reports = self.generation.read_all(found)
        self.refused = [report for report in reports if report.state == "invalid"]
        for report in self.refused:
            title = "/".join(filter(None, identity(report.document)[2:]))
            echo(
                f"Error: {report.document.get('kind')} {title} is left out: {report.problem}",
                err=True,
            )
        return [report.document for report in reports if report.state != "invalid"]

    def write(self, placed: PlacedPod, *, bind: bool = True) -> None:
        """Write claims' status and bind the pod. An ApiError becomes a ClickException.

        Without `bind` for a pod that has its node already.
        """
        try:
            for item in placed.claims:
                self._write_claim(item)
            if bind:
                self._bind(placed)
        except ApiError as error:
            raise click.ClickException(f"the server refused the request: {error.message}") from None

    def _write_claim(self, item: JsonDict) -> None:
        resource = self.resources[item["kind"]]
        if "resourceVersion" not in item["metadata"]:
            plain = {key: value for key, value in item.items() if key != "status"}
            made = self.client.create(resource, plain, item["metadata"]["namespace"])
            item["metadata"] = made["metadata"]
        stored = self.client.get(resource, item["metadata"]["name"], item["metadata"]["namespace"])

        def change(found: JsonDict) -> bool:
            found["status"] = {**status_of(found), **item["status"]}
            return True

        amend(self.client, resource, stored, change, subresource="status")

    def _bind(self, placed: PlacedPod) -> None:
        metadata = placed.pod["metadata"]
        namespace = metadata.get("namespace") or "default"
        if placed.pod["apiVersion"] == "v1":
            binding: JsonDict = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": metadata["name"], "namespace": namespace},
                "target": {"apiVersion": "v1", "kind": "Node", "name": placed.node},
            }
            self._name_claims(placed, namespace)
            self.client.post(PODS, metadata["name"], "binding", binding, namespace)
            return
        patch: JsonDict = {"spec": {"nodeName": placed.node}}
        self.client.patch(self.resources["Pod"], metadata["name"], patch, namespace)

    def _name_claims(self, placed: PlacedPod, namespace: str) -> None:
        """Record in a v1 pod's status which claims were created for its spec."""
        if self.generation.name != "v1":
            return
        made = {
            annotations_of(claim).get(ENTRY): claim["metadata"]["name"] for claim in placed.claims
        }
        statuses = [
            {"name": item.entry, "resourceClaimName": made[item.entry]}
            for item in pod_claims(placed.pod)
            if item.entry in made
        ]
        if statuses:
            patch: JsonDict = {"status": {"resourceClaimStatuses": statuses}}
            name = placed.pod["metadata"]["name"]
            self.client.patch(PODS, name, patch, namespace, type="strategic", subresource="status")

    def _all(self, resource: Resource, kind: str) -> list[JsonDict]:
        try:
            items = listed(self.client, resource, kind)
        except ReadingError as error:
            raise UnusableInput(str(error)) from None
        except ApiError as error:
            if error.code == 404:
                raise UnusableInput(
                    f"the server does not serve {self.generation.api_version} {kind}: start it "
                    f"with --profile {self.generation.name}"
                ) from None
            raise UnusableInput(f"cannot list {resource.plural}: {error.message}") from None
        return sorted(items, key=_age) if kind == "Pod" else items

    def _configs(self, objects: list[JsonDict]) -> list[JsonDict]:
        """Return the objects that claims and classes name as configs."""
        known = {identity(item) for item in objects}
        found = []
        for key in sorted(_named(objects)):
            if key in known:
                continue
            group, _, version = key[0].rpartition("/")
            resource = Resource(group, version, _plural(key[1]), namespaced=bool(key[2]))
            try:
                found.append(self.client.get(resource, key[3], key[2]))
            except ApiError:
                continue  # The claim that refers to it reports that it is missing.
        return found


def _named(value: object, namespace: str = "") -> set[tuple[str, str, str, str]]:
    """Return the references of all `configs` entries in some objects."""
    found: set[tuple[str, str, str, str]] = set()
    if isinstance(value, list):
        for item in value:
            found |= _named(item, namespace)
    elif isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            namespace = metadata.get("namespace") or namespace
        for key, part in value.items():
            if key in {"configs", "config"} and isinstance(part, list):
                found |= {
                    (c["apiVersion"], c["kind"], c.get("namespace") or namespace, c["name"])
                    for c in part
                    if isinstance(c, dict) and {"apiVersion", "kind", "name"} <= c.keys()
                }
            elif key != "status":
                found |= _named(part, namespace)
    return found


def _age(pod: JsonDict) -> tuple[str, int, str]:
    """Return a sort key: oldest pod first.

    Of those that were created in the same second, the one that was written first.
    """
    metadata = pod["metadata"]
    version = metadata.get("resourceVersion") or ""
    written = int(version) if version.isdecimal() else 0
    return metadata.get("creationTimestamp") or "", written, metadata["name"]


def _plural(kind: str) -> str:
    lower = kind.lower()
    return lower + ("es" if lower.endswith(("s", "x", "ch")) else "s")

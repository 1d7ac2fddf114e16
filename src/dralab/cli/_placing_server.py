"""`dralab allocate --apply`: read objects from a server and write results back."""

from collections.abc import Sequence
from typing import Final

import click

from dralab.api.status import ApiError
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.cli.generations import API_NAMES
from dralab.objects.claims import extended_claim, pod_claims
from dralab.objects.metadata import annotations_of, status_of
from dralab.prototypes.findings import NormalizedDocument, identity
from dralab.prototypes.placement import Generation, PlacedPod
from dralab.runtime.client import Client, amend
from dralab.runtime.generations import objects_of, older_with_pods, resources_of, served
from dralab.runtime.reading import ReadingError
from dralab.runtime.resources import PODS
from dralab.values.json_types import JsonDict

# What drivers report in a claim's status: of k8srm, and of resource.k8s.io/v1.
OF_DRIVERS: Final = ("deviceStatuses", "devices")
ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


def chosen_for_scheduling(client: Client, readable: Sequence[str] = API_NAMES) -> str:
    """Return the generation whose pods wait for `dralab allocate --apply` on a server.

    Where pods of two of them wait, the other one is named on stderr. Today's pods have a scheduler
    that runs: theirs is the last choice. `readable` are those that the command understands.
    """
    found = [name for name in served(client) if name in readable]
    older = [name for name in found if name != "v1"]
    waiting = older_with_pods(client, older) if len(older) > 1 else []
    for name in waiting[1:]:
        echo(f"pods of {name} wait too: add --api {name}", err=True)
    return next(iter([*waiting, *older, *found]), "k8srm")


def _tell_unreadable(error: ApiError) -> None:
    echo(f"Error: a config cannot be read: {error.message}", err=True)


class Server:
    """The objects of one generation on a server."""

    def __init__(self, client: Client, generation: Generation) -> None:
        self.client = client
        self.generation = generation
        self.refused: list[NormalizedDocument] = []
        self.resources = resources_of(generation)

    def objects(self) -> list[JsonDict]:
        """Return all objects of the generation; invalid ones are reported, and in `refused`."""
        try:
            found = objects_of(self.client, self.generation, _tell_unreadable)
        except ReadingError as error:
            raise UnusableInput(str(error)) from None
        except ApiError as error:
            if error.code == 404:
                raise UnusableInput(
                    f"the server does not serve {self.generation.api_version}: start it with "
                    f"--api {self.generation.name}"
                ) from None
            raise UnusableInput(error.message) from None
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
            own = {k: v for k, v in item["status"].items() if k not in OF_DRIVERS}
            found["status"] = {**status_of(found), **own}
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
        """Record in a v1 pod's status which claims were created for it."""
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
        status: JsonDict = {"resourceClaimStatuses": statuses} if statuses else {}
        if extended := extended_claim(placed.pod):
            status["extendedResourceClaimStatus"] = extended
        if status:
            patch: JsonDict = {"status": status}
            name = placed.pod["metadata"]["name"]
            self.client.patch(PODS, name, patch, namespace, type="strategic", subresource="status")

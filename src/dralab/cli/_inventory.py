"""Where a command's nodes, devices and pods come from: files, a cluster, or both.

One option helper and one way to read for all commands that answer questions. A cluster is only
read (get and list). What files add is taken as applied to it: an object of the same name replaces
the cluster's.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._connection import ClusterConnection
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.cli.generations import API_NAMES, FILES
from dralab.cli.generations import objects as objects_in_files
from dralab.lab.inventory import merged
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.cli._placing_server import Server
    from dralab.prototypes.findings import NormalizedDocument
    from dralab.prototypes.placement import Generation, GenerationCluster
    from dralab.runtime.remote import RemoteClient


@dataclass(frozen=True, slots=True, kw_only=True)
class InventorySource:
    """The files and the cluster that a command reads; `objects.snapshot` makes them one."""

    files: tuple[str, ...] = FILES
    connection: ClusterConnection

    def __bool__(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.files or self.connection)

    def or_usual_cluster(self) -> "InventorySource":
        """Return the cluster that kubectl would talk to, where nothing else is named."""
        if self:
            return self
        usual = replace(self.connection, kubeconfig=default_kubeconfig())
        return replace(self, connection=usual)

    def of_cluster(self) -> list[JsonDict]:
        """Return what the cluster has, in the hub's versions; nothing without one. UnusableInput.

        UsageError: the kubeconfig cannot be used.
        """
        from dralab.runtime.reading import ReadingError, read_cluster

        if not self.connection:
            return []
        client = self._client()
        try:
            return list(read_cluster(client, not_judged=_not_judged))
        except ReadingError as error:
            raise UnusableInput(f"{client.access.server}: {error}") from error
        finally:
            client.close()

    def older_generation(self, readable: Sequence[str] = API_NAMES) -> str:
        """Return the generation of a cluster that does not serve today's; empty if it does.

        `readable` are those that the command understands.
        """
        if not self.connection:
            return ""
        from dralab.cli._placing_server import chosen_for_scheduling
        from dralab.runtime.generations import served

        client = self._client()
        try:
            found = served(client)
            return "" if "v1" in found or not found else chosen_for_scheduling(client, readable)
        finally:
            client.close()

    def generation_to_place(self) -> str:
        """Return the generation of a cluster whose pods wait for `dralab allocate --apply`."""
        from dralab.cli._placing_server import chosen_for_scheduling

        client = self._client()
        try:
            return chosen_for_scheduling(client)
        finally:
            client.close()

    def older_with_pods(self) -> list[str]:
        """Return the older generations that have pods without a node in the cluster."""
        if not self.connection:
            return []
        from dralab.runtime.generations import older_with_pods, served

        client = self._client()
        try:
            return older_with_pods(client, served(client))
        finally:
            client.close()

    def cluster_of(self, generation: "Generation") -> "GenerationCluster":
        """Return what one generation of the device API has, the cluster's objects first."""
        found: list[JsonDict] = []
        refused: list[NormalizedDocument] = []
        if self.connection:
            with self.server_of(generation) as server:
                found, refused = server.objects(), server.refused
        if self.files:
            found = merged(found, objects_in_files(self.files, generation.name))
        return generation.cluster(found, refused)

    @contextmanager
    def server_of(self, generation: "Generation") -> "Iterator[Server]":
        """Give the cluster's objects of one generation, to read and to write."""
        from dralab.cli._placing_server import Server

        client = self._client()
        try:
            yield Server(client, generation)
        finally:
            client.close()

    def check_apply(self, output: str) -> None:
        """Refuse --apply where there is no cluster to change. UsageError."""
        if not self.connection or self.files:
            raise click.UsageError(
                "--apply changes a cluster: name it with --kubeconfig or --server, without files"
            )
        if output != "table":
            raise click.UsageError(
                f"--apply tells what it does; without it, -o {output} prints a plan"
            )

    def _client(self) -> "RemoteClient":
        from dralab.runtime.remote import RemoteClient

        return RemoteClient(self.connection.access())


def _not_judged(what: str) -> None:
    echo(f"{what} are not judged: this user may not list them", err=True)


def default_kubeconfig() -> Path | None:
    """Return the kubeconfig of $KUBECONFIG, or of the user's directory. UsageError: several."""
    named = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if len(named) > 1:
        raise click.UsageError(
            "$KUBECONFIG names several files: choose one with --kubeconfig, or merge them with "
            "kubectl config view --flatten"
        )
    usual = Path.home() / ".kube" / "config"
    return Path(named[0]) if named else (usual if usual.exists() else None)

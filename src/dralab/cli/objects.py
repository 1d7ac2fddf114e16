"""Shared by the commands on files and clusters: the inventory, or exit code 2 with all errors."""

from collections.abc import Sequence

import click

from dralab.allocation.backlog import Pending
from dralab.allocation.cel_compiler import compiled
from dralab.allocation.snapshot import Snapshot
from dralab.api.manifests import Check, Manifests, load
from dralab.api.resource.files import ResourceCheck, add_pool_problems
from dralab.api.standard_checks import standard_check
from dralab.cli._inventory import InventorySource, merged
from dralab.cli._output import refuse
from dralab.cli.generations import stdin
from dralab.kernel.clock import WallClock, rfc3339
from dralab.values.json_types import JsonDict


def snapshot(source: InventorySource) -> Snapshot:
    """Return the objects of files and of a cluster as one; exit with code 2 and every mistake.

    UsageError: there is nothing to read, or no devices in files alone.
    """
    return Snapshot(inventory(source))


def inventory(source: InventorySource) -> list[JsonDict]:
    """Return the objects that `snapshot` makes a cluster of, checked and defaulted."""
    if not source:
        raise click.UsageError(
            "nothing to read: give files with -f (- is standard input), or a cluster with "
            "--kubeconfig"
        )
    found = source.of_cluster()
    if source.files:
        read = manifests(source.files)
        refuse(read.problems)
        found = merged(found, [item.object for item in read.objects])
    if not source.connection and not any(item.get("kind") == "ResourceSlice" for item in found):
        raise click.UsageError("the input has no ResourceSlice: there are no devices to allocate")
    return found


def manifests(files: Sequence[str]) -> Manifests:
    """Return the objects of files, checked by the rules of their kinds."""
    now = rfc3339(WallClock().now())
    checks: list[Check] = [ResourceCheck(now=now, expressions=compiled), standard_check]
    read = load(files, checks, stdin=stdin)
    add_pool_problems(read)
    return read


def named(pending: Sequence[Pending], name: str) -> list[Pending]:
    """Return the pending pod or claim of a name: `POD`, `CLAIM` or `NAMESPACE/NAME`."""
    namespace, slash, short = name.rpartition("/")
    found = [
        each
        for each in pending
        if (not slash or each.namespace == namespace)
        and (each.name == short or _has_claim(each, short))
    ]
    if not found:
        known = ", ".join(f"{each.namespace}/{each.name}" for each in pending) or "none"
        raise click.UsageError(f"no pod or claim {name!r} requests devices; those that do: {known}")
    return found


def _has_claim(each: Pending, name: str) -> bool:
    return any(claim["metadata"]["name"] == name for claim in (*each.claims, *each.allocated))


def check_node(cluster: Snapshot, node: str) -> None:
    """Raise UsageError if the named node is not in the input; "" names none."""
    known = list(cluster.fleet.number_of)
    if node and node not in known:
        raise click.UsageError(f"no node {node!r}; known nodes: {', '.join(known) or 'none'}")

"""`dralab store migrate`: the objects of a store as a release of Kubernetes has them."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._components import release_of
from dralab.cli._options import opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import UnusableInput
from dralab.cli.store import DATA

if TYPE_CHECKING:
    from dralab.apiserver.resources.migration import MigratedObject
    from dralab.apiserver.storage import Store


@click.command()
@options
def migrate(
    *,
    data: Path | None = DATA,
    kubernetes_version: str = opt("The release whose form the objects get.", metavar="1.NN"),
    apply: bool = opt("Rewrite the objects; without it, nothing is written."),
) -> None:
    """Say which objects another release stored otherwise, and what they lose; rewrite them.

    A server reads them as its own release has them in any case, which takes longer. Objects that
    the release does not serve stay as they are. Stop the server first.

    Example: `dralab store migrate --data lab --kubernetes-version 1.37`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.writers import note_writers
    from dralab.cluster import open_store

    release = release_of(kubernetes_version)
    place = data or default_data()
    if not place.exists():
        raise UnusableInput(f"there is no store in {place}")
    try:
        store = open_store(place)
    except StorageUnavailable as error:
        raise UnusableInput(str(error)) from error
    try:
        counts = Counter(_told(each) for each in _found(store, release, apply=apply))
    finally:
        store.close()
    for text, count in sorted(counts.items()):
        echo(f"{count} x {text}")
    if apply:
        note_writers(place, frozenset({release}))
    done = "written" if apply else "nothing is written without --apply"
    note(f"{sum(counts.values())} objects are stored otherwise than by {release}: {done}")


def _found(store: "Store", release: str, *, apply: bool) -> "list[MigratedObject]":
    from dralab.api.kinds import Kinds
    from dralab.apiserver.resources.assembly import new_resources
    from dralab.apiserver.resources.migration import migrated, read_anew
    from dralab.kernel.clock import WallClock
    from dralab.kernel.randomness import Randomness

    resources = new_resources(
        store,
        WallClock(),
        Randomness.from_system(),
        kinds=Kinds.standard(release=release),
        bootstrap=False,
    )
    read_anew(resources)
    return list(migrated(resources, apply=apply))


def _told(each: "MigratedObject") -> str:
    resource = each.key.resource
    if each.unserved:
        return f"{resource}: {each.before} is not served, and stays"
    version = f"{each.before} becomes {each.after}" if each.before != each.after else each.after
    lost = f", without {', '.join(each.lost)}" if each.lost else ""
    return f"{resource}: {version}{lost}"

"""`dralab store`: back up, restore, check and repair the store of a cluster."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._components import release_of
from dralab.cli._options import ANY_PATH, EXISTING, FOLDER, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import default_data, etcd_of, note
from dralab.cli.errors import UnusableInput, refusing
from dralab.cli.main import LazyGroup

if TYPE_CHECKING:
    from dralab.apiserver.storage import Store
    from dralab.apiserver.verbs.upkeep.migration import MigratedObject


DATA: Final = opt(
    "The directory of the cluster.  [default: dralab/cluster in your user data directory]", FOLDER
)


@click.group(cls=LazyGroup)
def group() -> None:
    """Back up, restore, check or repair the objects of a cluster.

    Example: `dralab store check --data lab`
    """


@group.command()
@options
def check(*, data: Path | None = DATA) -> None:
    """Verify every row, every page and the end of a store. The store may be in use.

    Prints one line per problem. Exit code 0: no problems; 1: the store is damaged.

    Example: `dralab store check --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.inspection import check as problems_of

    place = data or default_data()
    with refusing(StorageUnavailable):
        found = problems_of(place)
    for problem in found:
        echo(problem)
    if found:
        raise click.ClickException(f"the store in {place} is damaged")
    note(f"the store in {place} is intact")


@group.command()
@options
def repair(*, data: Path | None = DATA) -> None:
    """Rebuild a store from what can be read of a damaged one. Stop the server first.

    Prints the lost objects, one per line: those whose newest state cannot be read. Keeps the
    damaged file. Clients list everything again, as after `dralab store restore`. A
    backup may have more objects.

    Example: `dralab store repair --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.inspection import repair as repair_store

    place = data or default_data()
    with refusing(StorageUnavailable):
        found = repair_store(place)
    for key in found.lost:
        echo("/".join(part for part in key if part))
    if found.unknown:
        note(f"at least {found.unknown} more rows are lost; their objects are unknown")
    note(
        f"kept {found.objects} objects, lost {len(found.lost)}; the store continues at revision "
        f"{found.revision}, the damaged file is {found.old}"
    )


@group.command()
@options
def backup(
    *,
    file: Path = arg(ANY_PATH),
    data: Path | None = opt(
        "The directory of the cluster.  [default: dralab/cluster in your user data directory]",
        FOLDER,
    ),
) -> None:
    """Back up the objects of a cluster, running or not, to FILE.

    Only its owner can read FILE. The backup is verified; a damaged store is not copied, and the
    exit code is 1. Prints the revision of the backup.

    Example: `dralab store backup monday.db --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable, StoreDamaged
    from dralab.apiserver.storage.copies import back_up

    place = data or default_data()
    try:
        revision = back_up(place, file)
    except StoreDamaged as error:
        raise click.ClickException(str(error)) from error
    except StorageUnavailable as error:
        raise UnusableInput(str(error)) from error
    echo(revision)
    note(f"backed up {place} to {file}; restore it with dralab store restore")


@group.command()
@options
def restore(
    *,
    file: Path = arg(EXISTING),
    data: Path | None = opt(
        "A directory without a cluster.  [default: dralab/cluster in your user data directory]",
        FOLDER,
    ),
) -> None:
    """Restore the objects that `dralab store backup` saved in FILE.

    The backup is verified first. If it is damaged, nothing is changed and the exit code is 1.
    Prints the revision from which the cluster continues. It is far ahead of any that clients have
    seen, so that watchers of the old cluster list again.

    Example: `dralab store restore monday.db --data lab-again`
    """
    from dralab.apiserver.storage import StorageUnavailable, StoreDamaged
    from dralab.apiserver.storage.copies import restore as restore_store

    place = data or default_data()
    try:
        revision = restore_store(file, place)
    except StoreDamaged as error:
        raise click.ClickException(str(error)) from error
    except StorageUnavailable as error:
        raise UnusableInput(str(error)) from error
    echo(revision)
    note(f"restored {file}; serve it with: dralab up --data {place}")


@group.command()
@options
def migrate(
    *,
    data: Path | None = DATA,
    store: str = opt(
        "Read the objects from an etcd instead of --data. Needs the extra `etcd`.",
        metavar="etcd://HOST:PORT[,HOST:PORT][?prefix=PATH&cafile=FILE]",
    ),
    kubernetes_version: str = opt(
        "Store the objects as this release does.", metavar="1.NN", required=True
    ),
    apply: bool = opt("Rewrite the objects; without it, nothing is written."),
) -> None:
    """List objects that another release stored in its own form, and rewrite them.

    Without it, a server converts them whenever it reads them, which takes longer. Objects that the
    release does not serve stay as they are. Stop the server first.

    Example: `dralab store migrate --data lab --kubernetes-version 1.37`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.writers import note_writers
    from dralab.cluster import open_store, shared_store

    if store and data:
        raise click.UsageError("--store and --data are two stores: give one")
    release, address = release_of(kubernetes_version), etcd_of(store, {})
    place = data or default_data()
    if address is None and not place.exists():
        raise UnusableInput(f"there is no store in {place}")
    with refusing(StorageUnavailable):
        shared = None if address is None else shared_store(address)
        with closing(shared or open_store(place)) as opened:
            counts = Counter(_told(each) for each in _found(opened, release, apply=apply))
            if apply:
                note_writers(shared or place, frozenset({release}))
    for text, count in sorted(counts.items()):
        echo(f"{count} x {text}")
    done = "written" if apply else "nothing is written without --apply"
    note(f"{sum(counts.values())} objects are stored otherwise than by {release}: {done}")


def _found(store: "Store", release: str, *, apply: bool) -> "list[MigratedObject]":
    from dralab.api.kinds import Kinds
    from dralab.apiserver.verbs.assembly import new_resources
    from dralab.apiserver.verbs.upkeep.migration import migrated, read_anew
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

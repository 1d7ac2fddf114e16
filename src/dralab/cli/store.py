"""`dralab store`: back up, restore, check and repair the store of a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from dralab.cli._options import FOLDER, opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import UnusableInput
from dralab.cli.main import LazyGroup

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "backup": ("dralab.cli.backup:backup", "Back up the objects of a cluster to a file."),
    "restore": ("dralab.cli.restore:restore", "Restore a cluster from a backup."),
    "check": ("dralab.cli.store:check", "Verify every checksum of a store."),
    "migrate": ("dralab.cli.store_migrate:migrate", "Rewrite objects for a Kubernetes release."),
    "repair": ("dralab.cli.store:repair", "Recover what can be read from a damaged store."),
}
DATA: Final = opt(
    "The directory of the cluster.  [default: dralab/cluster in your user data directory]", FOLDER
)


@click.group(cls=LazyGroup, commands_table=COMMANDS)
def group() -> None:
    """Back up, restore, check or repair the objects of a cluster.

    Example: `dralab store check --data lab`
    """


@click.command()
@options
def check(*, data: Path | None = DATA) -> None:
    """Verify every row, every page and the end of a store. The store may be in use.

    Prints one line per problem. Exit code 0: no problems; 1: the store is damaged.

    Example: `dralab store check --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.inspection import check as problems_of

    place = data or default_data()
    try:
        found = problems_of(place)
    except StorageUnavailable as error:
        raise UnusableInput(str(error)) from error
    for problem in found:
        echo(problem)
    if found:
        raise click.ClickException(f"the store in {place} is damaged")
    note(f"the store in {place} is intact")


@click.command()
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
    try:
        found = repair_store(place)
    except StorageUnavailable as error:
        raise UnusableInput(str(error)) from error
    for key in found.lost:
        echo("/".join(part for part in key if part))
    if found.unknown:
        note(f"at least {found.unknown} more rows are lost; their objects are unknown")
    note(
        f"kept {found.objects} objects, lost {len(found.lost)}; the store continues at revision "
        f"{found.revision}, the damaged file is {found.old}"
    )

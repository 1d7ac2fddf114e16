"""`dralab store`: whether the store of a cluster is whole, and what to do if it is not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import Unusable
from dralab.cli.main import LazyGroup

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "check": ("dralab.cli.store:check", "Verify every checksum of a store."),
    "repair": ("dralab.cli.store:repair", "Keep what can be read of a damaged store."),
}
DATA: Final = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the cluster.  [default: dralab's place among your own data]",
)


@click.group(cls=LazyGroup, commands_table=COMMANDS)
def group() -> None:
    """Verify or repair the files in which a cluster keeps its objects.

    Example: `dralab store check --data lab`
    """


@click.command()
@DATA
def check(data: Path | None) -> None:
    """Verify every row, every page and the end of a store, in use or not.

    Prints one line a problem and exits with 1, or nothing and exits with 0.

    Example: `dralab store check --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.inspection import check as problems_of

    place = data or default_data()
    try:
        found = problems_of(place)
    except StorageUnavailable as error:
        raise Unusable(str(error)) from error
    for problem in found:
        click.echo(problem)
    if found:
        raise click.ClickException(f"the store in {place} is damaged")
    note(f"the store in {place} is whole")


@click.command()
@DATA
def repair(data: Path | None) -> None:
    """Make a whole store of what can be read of a damaged one. Stop the server first.

    Prints the objects that are lost, one a line: those whose newest state cannot be read. The
    damaged file is kept. Clients list everything again, as after `dralab restore`; a backup may
    have more.

    Example: `dralab store repair --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.storage.inspection import repair as repair_store

    place = data or default_data()
    try:
        found = repair_store(place)
    except StorageUnavailable as error:
        raise Unusable(str(error)) from error
    for key in found.lost:
        click.echo("/".join(part for part in key if part))
    if found.unknown:
        note(f"at least {found.unknown} more rows are lost; their objects are unknown")
    note(
        f"kept {found.objects} objects, lost {len(found.lost)}; the store goes on at revision "
        f"{found.revision}, the damaged file is {found.old}"
    )

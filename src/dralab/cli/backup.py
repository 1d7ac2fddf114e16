"""`dralab backup`: a copy of a cluster's objects."""

from pathlib import Path

import click

from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import Unusable


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the cluster.  [default: dralab's place among your own data]",
)
def backup(file: Path, data: Path | None) -> None:
    """Copy the objects of a cluster, running or not, to FILE.

    FILE is readable by its owner alone. It is verified: a damaged store is not copied, and the
    exit code is 1. Prints the revision that the copy has.

    Example: `dralab backup monday.db --data lab`
    """
    from dralab.apiserver.storage import StorageUnavailable, StoreDamaged
    from dralab.apiserver.storage.copies import back_up

    place = data or default_data()
    try:
        revision = back_up(place, file)
    except StoreDamaged as error:
        raise click.ClickException(str(error)) from error
    except StorageUnavailable as error:
        raise Unusable(str(error)) from error
    click.echo(revision)
    note(f"{place} is saved in {file}; dralab restore brings it back")

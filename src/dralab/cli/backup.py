"""`dralab store backup`: back up a cluster's objects."""

from pathlib import Path

import click

from dralab.cli._options import ANY_PATH, FOLDER, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import UnusableInput


@click.command()
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

"""`dralab store restore`: restore a cluster from a backup."""

from pathlib import Path

import click

from dralab.cli._options import EXISTING, FOLDER, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import UnusableInput


@click.command()
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

"""`dralab restore`: a cluster from a copy of its objects."""

from pathlib import Path

import click

from dralab.cli.apiserver import default_data, note
from dralab.cli.errors import Unusable


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory that holds no cluster.  [default: dralab's place among your own data]",
)
def restore(file: Path, data: Path | None) -> None:
    """Bring back the objects that `dralab backup` saved in FILE.

    The copy is verified first; a damaged one is refused with exit code 1, and nothing is changed.
    Prints the revision at which the cluster goes on: far ahead of any that clients have seen, so
    that whoever watched the old one lists again.

    Example: `dralab restore monday.db --data lab-again`
    """
    from dralab.apiserver.storage import StorageUnavailable, StoreDamaged
    from dralab.apiserver.storage.copies import restore as restore_store

    place = data or default_data()
    try:
        revision = restore_store(file, place)
    except StoreDamaged as error:
        raise click.ClickException(str(error)) from error
    except StorageUnavailable as error:
        raise Unusable(str(error)) from error
    click.echo(revision)
    note(f"{file} is restored; serve it by: dralab up --data {place}")

"""`dralab up`: a cluster on this machine."""

from typing import Any

import click

from dralab.cli.apiserver import serve, server_options


@click.command()
@server_options
def up(**options: Any) -> None:
    """Serve a cluster until Ctrl-C or SIGTERM.

    Prints `ready: URL` when clients can come. Objects are kept and are there the next time;
    `--data :memory:` forgets them.

    Example: `dralab up`, and in another terminal `kubectl --kubeconfig … get pods -A`
    """
    serve(**options)

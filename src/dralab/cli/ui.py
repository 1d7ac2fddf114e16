"""`dralab ui`: look at a cluster, a snapshot or a simulation in a browser."""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli import objects
from dralab.cli._connection import NO_CLUSTER
from dralab.cli._inventory import InventorySource
from dralab.cli._older import as_today, older_generation
from dralab.cli._options import arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing

if TYPE_CHECKING:
    from dralab.web.routes import PageAnswers


@click.command(
    epilog="""Examples:

\b
  dralab ui --kubeconfig ~/.kube/config
  dralab ui monday.snapshot
  dralab ui week.dralab
  dralab ui results/
  dralab ui -f cluster.yaml -f pods.yaml
"""
)
@options
def ui(
    *,
    source: InventorySource,
    path: Path | None = arg(click.Path(exists=True, path_type=Path)),
    port: int = opt(
        "The port on 127.0.0.1; default: any free one.",
        least=0,
        most=65_535,
        show_default=False,
        default=0,
    ),
) -> None:
    """Look at the devices of a cluster in a browser.

    Shows the cluster of --kubeconfig, $KUBECONFIG or ~/.kube/config, the files of -f, or PATH: a
    snapshot, a recording over its time, or the directory of a simulation's results. The page shows
    which device is free or held and by whom, which pods wait and why, and what would help. A
    cluster is only read. Prints an address to open; each works once, and the next one is printed
    when it is used. Serves on this machine only, until Ctrl-C.
    """
    from dralab.apiserver.http.connections.listening import ServingError

    desk = _desk(source, path)
    with contextlib.suppress(KeyboardInterrupt), refusing(ServingError):
        asyncio.run(_serve(desk, port))


def _desk(source: InventorySource, path: Path | None) -> "PageAnswers":
    from dralab.kernel.clock import WallClock
    from dralab.web.desk import Desk
    from dralab.web.followed_source import FollowedSource
    from dralab.web.sources import FixedSource

    clock = WallClock()
    if path is not None:
        if source.files:
            raise click.UsageError("give either PATH or -f")
        if path.is_dir() or _is_recording(path):
            return _run_desk(path)
        source = InventorySource(files=(str(path),), connection=NO_CLUSTER)
        return Desk(FixedSource(objects.inventory(source)), clock, path.name, live=False)
    source = source.or_usual_cluster()
    if source.files or not source.connection:
        title = ", ".join(Path(name).name for name in source.files)
        older = older_generation(source, None)
        found = as_today(source, older) if older else objects.inventory(source)
        return Desk(FixedSource(found), clock, title, live=False)
    client = source.connection.client()
    return Desk(FollowedSource(client, clock), clock, source.connection.access().server, live=True)


def _is_recording(path: Path) -> bool:
    from dralab.simulation.scenario.recorded import is_recording

    return is_recording(path)


def _run_desk(folder: Path) -> "PageAnswers":
    from dralab.scenarios.errors import InputError
    from dralab.web.run_desk import RunDesk

    try:
        return RunDesk(folder)
    except InputError as error:
        hint = "; `dralab simulate run --write DIR` writes one" if folder.is_dir() else ""
        raise UnusableInput(f"{error}{hint}") from error


async def _serve(desk: "PageAnswers", port: int) -> None:
    from dralab.apiserver.http.connections.listening import listen
    from dralab.apiserver.http.connections.serving import HttpServer
    from dralab.web.own_server import PageApp

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    listener = listen("127.0.0.1", port)
    app = PageApp(desk, lambda code: echo(f"another window: {http.url}/ui#{code}", err=True))
    http = HttpServer(app, listener)
    await http.start()
    echo(f"open: {http.url}/ui#{app.code}")
    await over.wait()
    await http.stop()

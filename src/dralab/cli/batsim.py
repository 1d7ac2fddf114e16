"""`dralab batsim`: the scheduler's side of Batsim's protocol."""

from functools import partial

import click

from dralab.cli._runs import bad_input
from dralab.cli._terminal import echo
from dralab.cli.simulate_jobs import SCHEDULERS
from dralab.kernel.extras import require


@click.command()
@click.option(
    "--socket",
    default="tcp://127.0.0.1:28000",
    show_default=True,
    help="The address to listen on; Batsim's default is tcp://*:28000.",
)
@click.option(
    "--scheduler",
    type=click.Choice(SCHEDULERS),
    default="easy",
    show_default=True,
    help="The built-in scheduler that decides.",
)
@click.option(
    "--protocol",
    type=click.Choice(["4", "5"]),
    default="4",
    show_default=True,
    help="That of Batsim 1 to 4, or of Batsim 5 (batprotocol).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "binary"]),
    default="json",
    show_default=True,
    help="With --protocol 5: the form of messages that is asked for.",
)
@click.option("--once/--again", default=True, help="Exit after one simulation, or wait for more.")
def batsim(socket: str, scheduler: str, protocol: str, form: str, once: bool) -> None:
    """Act as the scheduler of a real Batsim, over ZeroMQ.

    Example: `dralab batsim --socket 'tcp://*:28000' --scheduler conservative`
    """
    require("zeromq", "dralab batsim")
    from dralab.simulation.engines.batch import remote
    from dralab.simulation.engines.batch.batprotocol import ends, spelling
    from dralab.simulation.engines.batch.schedulers import SCHEDULERS as MAKERS

    serve = partial(ends.serve, form=spelling.FORMS[form]) if protocol == "5" else remote.serve
    with bad_input():
        while True:
            count = serve(
                MAKERS[scheduler](),
                socket,
                ready=lambda address: echo(f"listening on {address}", err=True),
            )
            echo(f"the simulation ended after {count} messages", err=True)
            if once:
                return

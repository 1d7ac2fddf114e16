"""`dralab simulate batsim-scheduler`: the scheduler's side of Batsim's protocol."""

from functools import partial

import click

from dralab.cli._options import opt, options
from dralab.cli._runs import bad_input
from dralab.cli._terminal import echo
from dralab.cli.simulate_run import SCHEDULERS
from dralab.kernel.extras import require


@click.command("batsim-scheduler")
@options
def batsim_scheduler(
    *,
    listen: str = opt(
        "The address to listen on; Batsim's default is tcp://*:28000.",
        default="tcp://127.0.0.1:28000",
    ),
    scheduler: str = opt("The built-in scheduler that decides.", SCHEDULERS, default="easy"),
    protocol: str = opt(
        "Batsim's protocol: 4 for Batsim 1 to 4, 5 for Batsim 5 (batprotocol).",
        ["4", "5"],
        default="4",
    ),
    form: str = opt(
        "With --protocol 5: the message format to request.",
        ["json", "binary"],
        flags="--format",
        default="json",
    ),
    once: bool = opt(
        "Exit after one simulation, or wait for more.",
        flags="--once/--again",
        show_default=False,
        default=True,
    ),
) -> None:
    """Act as the scheduler of a real Batsim, over ZeroMQ.

    Example: `dralab simulate batsim-scheduler --listen 'tcp://*:28000' --scheduler conservative`
    """
    require("zeromq", "dralab simulate batsim-scheduler")
    from dralab.simulation.engines.batch import remote
    from dralab.simulation.engines.batch.batprotocol import ends, spelling
    from dralab.simulation.engines.batch.schedulers import SCHEDULERS as MAKERS

    serve = partial(ends.serve, form=spelling.FORMS[form]) if protocol == "5" else remote.serve
    with bad_input():
        while True:
            count = serve(
                MAKERS[scheduler](),
                listen,
                ready=lambda address: echo(f"listening on {address}", err=True),
            )
            echo(f"the simulation ended after {count} messages", err=True)
            if once:
                return

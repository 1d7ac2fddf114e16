"""`dralab controllers`: the controllers as a process of their own, for any cluster."""

import click

from dralab.cli._components import run_until_told
from dralab.cli._connection import Connection, cluster_options


@click.command()
@cluster_options
@click.option(
    "--without",
    metavar="NAME[,NAME]",
    default="",
    help="Controllers to leave out, by the names that kube-controller-manager gives them.",
)
def controllers(connection: Connection, without: str) -> None:
    """Run the controllers of any cluster until Ctrl-C or SIGTERM.

    Claims from templates, their release and protection, workloads, garbage, namespaces, quotas,
    nodes that are gone; claims of classic DRA where the server has it. Run one such process a
    cluster. Prints `ready: controllers` when it knows the cluster.

    Example: `dralab controllers --kubeconfig lab.kubeconfig`
    """
    from dralab.components.profiles import kinds_of
    from dralab.controllers import registry
    from dralab.controllers.classic_claims import ClassicClaims
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.client import serves
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager
    from dralab.runtime.resources import SCHEDULING_CONTEXTS

    left_out = [name.strip() for name in without.split(",") if name.strip()]
    unknown = sorted(set(left_out) - set(registry.CONTROLLERS))
    if unknown:
        raise click.BadParameter(
            f"there is no controller {unknown[0]!r}; there are: {', '.join(registry.CONTROLLERS)}",
            param_hint="--without",
        )
    client = connection.client()
    engine = LiveEngine(name="controllers", workers=4)
    manager = Manager(engine, client, Randomness.from_system())
    classic = serves(client, SCHEDULING_CONTEXTS)
    kinds = kinds_of(("v1", "classic")) if classic else None
    registry.assemble(manager, without=left_out, kinds=kinds, ca=client.access.ca or "")
    if classic and registry.CLAIMS not in left_out:
        ClassicClaims(manager)
    try:
        run_until_told(manager, engine, "controllers")
    finally:
        manager.stop()
        engine.stop()
        client.close()

"""`dralab controllers`: run the controllers against any cluster."""

from pathlib import Path

import click

from dralab.cli._components import run_until_told
from dralab.cli._connection import RequiredConnection
from dralab.cli._options import EXISTING, opt, options


@click.command()
@options
def controllers(
    *,
    connection: RequiredConnection,
    certificate: Path | None = opt(
        "The CA (PEM) that signs approved certificate requests; without it they are not signed.",
        EXISTING,
        flags="--cluster-signing-cert-file",
        metavar="FILE",
    ),
    key: Path | None = opt(
        "The private key (PEM) of that CA.",
        EXISTING,
        flags="--cluster-signing-key-file",
        metavar="FILE",
    ),
    without: str = opt(
        "Controllers to leave out, by their names in kube-controller-manager.",
        metavar="NAME[,NAME]",
    ),
) -> None:
    """Run the controllers against any cluster until Ctrl-C or SIGTERM.

    They create claims from templates, release and protect claims, and handle workloads, garbage
    collection, namespaces, quotas and the node lifecycle; and what older device APIs need if the
    server serves them. Run one such process per cluster. Prints `ready: controllers` once its
    caches have synced.

    Example: `dralab controllers --kubeconfig lab.kubeconfig`
    """
    from dralab.components import older_parts
    from dralab.components.profiles import kinds_of
    from dralab.controllers import registry
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

    if (certificate is None) != (key is None):
        raise click.UsageError(
            "--cluster-signing-cert-file and --cluster-signing-key-file belong together"
        )
    left_out = [name.strip() for name in without.split(",") if name.strip()]
    unknown = sorted(set(left_out) - set(registry.CONTROLLERS))
    if unknown:
        raise click.BadParameter(
            f"unknown controller {unknown[0]!r}; known: {', '.join(registry.CONTROLLERS)}",
            param_hint="--without",
        )
    client = connection.client()
    engine = LiveEngine(name="controllers", workers=4)
    manager = Manager(engine, client, Randomness.from_system())
    profiles = older_parts.profiles_of(client)
    kinds = kinds_of(profiles) if {*profiles} - {"v1"} else None
    registry.assemble(
        manager,
        without=left_out if "v1" in profiles else {*left_out, *registry.OF_TODAYS_DEVICES},
        kinds=kinds,
        ca=client.access.ca or "",
        signing_files=(certificate, key) if certificate and key else None,
    )
    for parts in older_parts.served(kinds):
        parts.control(manager, without=left_out)
    run_until_told(manager, engine, "controllers", last=[client.close])

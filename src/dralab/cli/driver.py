"""`dralab driver run`: a driver on one node as a process of its own, under any kubelet."""

from pathlib import Path

import click

from dralab.cli._parts import CDI, KUBECONFIG, ROOT, connected, run_until_told


@click.group()
def group() -> None:
    """Run drivers that need no hardware.

    Example: `dralab driver run gpu --kubeconfig lab.kubeconfig --node n1`
    """


@group.command("run")
@click.argument("name", type=click.Choice(["fake", "gpu", "nic", "cpu"]))
@KUBECONFIG
@click.option("--node", "node_name", required=True, help="The node that it serves.")
@ROOT
@CDI
def run(name: str, kubeconfig: Path, node_name: str, root: Path, cdi_root: Path) -> None:
    """Publish devices and prepare claims until Ctrl-C or SIGTERM.

    Prints `ready` when the kubelet can find it. Slices, checkpoint and CDI files stay when it
    stops; what it published is found again at the next start.

    Example: `dralab driver run gpu --kubeconfig lab.kubeconfig --node n1 --root /tmp/k`
    """
    from dralab.contracts.cdi_cache import FileDirectory
    from dralab.contracts.wire import PluginServer
    from dralab.drivers.catalog import DRIVERS
    from dralab.drivers.checkpoint import FileCheckpoint
    from dralab.drivers.hosting import HostedPlugin
    from dralab.drivers.publishing import Publisher
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

    client = connected(kubeconfig)
    driver = DRIVERS[name](node_name)
    place = root / "plugins" / driver.name
    checkpoint = FileCheckpoint(place / "checkpoint.json")
    plugin = HostedPlugin(driver, client, FileDirectory(cdi_root), checkpoint)
    try:
        server = PluginServer(
            plugin,
            endpoint=place / "dra.sock",
            registration=root / "plugins_registry" / f"{driver.name}-reg.sock",
            registered=lambda good, error: None if good else click.echo(error, err=True),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    engine = LiveEngine(name="driver")
    manager = Manager(engine, client, Randomness.from_system())
    publisher = Publisher(manager)
    server.start()
    engine.soon(lambda: publisher.publish(driver))
    try:
        run_until_told(manager, engine)
    finally:
        server.stop()
        manager.stop()
        engine.stop()
        client.close()

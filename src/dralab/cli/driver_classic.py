"""`dralab driver classic`: the two programs of the classic fake driver, as the chart runs them."""

from pathlib import Path

import click

from dralab.cli._components import CDI, ROOT, run_until_told
from dralab.cli._connection import ClusterConnection, cluster_options
from dralab.cli._driver_flags import ClientFlags
from dralab.cli._options import opt, options
from dralab.cli.apiserver import note
from dralab.cli.errors import UnusableInput
from dralab.kernel.extras import require

NAMESPACE = opt(
    "The namespace of the NodeAllocationStates.", default="fake-system", envvar="POD_NAMESPACE"
)
NODE = opt("The node of the plugin.", envvar="NODE_NAME")


@click.group("classic")
def group() -> None:
    """Run the fake driver of classic DRA, for `dralab up --profile v1,classic`.

    Example: `dralab driver classic controller --kubeconfig lab.kubeconfig`
    """


@group.command("controller")
@cluster_options
@options
def controller(
    *, connection: ClusterConnection, flags: ClientFlags, namespace: str = NAMESPACE
) -> None:
    """Run the driver's controller until Ctrl-C or SIGTERM.

    It negotiates nodes with the scheduler and allocates devices.

    Example: `dralab driver classic controller --kubeconfig lab.kubeconfig`
    """
    from dralab.drivers.classic.controller import ClassicController
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

    client = flags.client(connection)
    engine = LiveEngine(name="controller")
    manager = Manager(engine, client, Randomness.from_system())
    ClassicController(manager, namespace=namespace)
    try:
        run_until_told(manager, engine, "controller")
    finally:
        manager.stop()
        engine.stop()
        client.close()


@group.command("set-nas-status")
@cluster_options
@options
def set_nas_status(
    *,
    connection: ClusterConnection,
    flags: ClientFlags,
    namespace: str = NAMESPACE,
    node: str = NODE,
    status: str = opt(
        "The status of the node's NodeAllocationState.",
        click.Choice(["Ready", "NotReady"], case_sensitive=False),
    ),
) -> None:
    """Set the status of a node's NodeAllocationState, and create it if it is missing.

    For when no plugin runs that would set it.

    Example: `dralab driver classic set-nas-status --kubeconfig F --node n1 --status NotReady`
    """
    from dralab.api.status import ApiError
    from dralab.contracts.cdi_cache import MemoryDirectory
    from dralab.drivers.classic.plugin import ClassicPlugin

    client = flags.client(connection)
    try:
        ClassicPlugin(node, client, MemoryDirectory(), namespace=namespace).write_status(status)
    except ApiError as error:
        raise click.ClickException(error.message) from error
    finally:
        client.close()


@group.command("plugin")
@cluster_options
@options
def plugin(
    *,
    connection: ClusterConnection,
    flags: ClientFlags,
    namespace: str = NAMESPACE,
    node: str = NODE,
    root: Path = ROOT,
    cdi_root: Path = CDI,
) -> None:
    """Run the driver's kubelet plugin until Ctrl-C or SIGTERM.

    It publishes a node's devices and prepares claims. It uses the kubelet API of Kubernetes 1.28 to
    1.30, which nodes of a cluster with the profile `classic` serve.

    Example: `dralab driver classic plugin --kubeconfig lab.kubeconfig --node n1 --root /tmp/k`
    """
    from dralab.api.status import ApiError
    from dralab.contracts.cdi_cache import FileDirectory
    from dralab.contracts.wire import OLD, SocketError
    from dralab.drivers.classic.plugin import AllocationStates, ClassicPlugin
    from dralab.drivers.sockets import SocketServer
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

    require("grpc", "dralab driver classic plugin")
    client = flags.client(connection)
    found = ClassicPlugin(node, client, FileDirectory(cdi_root), namespace=namespace)
    try:
        found.start()
        server = SocketServer(found, root, versions=[OLD], health=False, resources=found.resources)
        server.on_status = lambda error: note(
            f"the kubelet refused the registration: {error}"
            if error
            else "registered with the kubelet"
        )
        server.start()
    except ApiError as error:
        raise UnusableInput(error.message) from error
    except (SocketError, OSError) as error:
        raise UnusableInput(str(error)) from error
    engine = LiveEngine(name="driver")
    manager = Manager(engine, client, Randomness.from_system())
    AllocationStates(manager, only=node).plugins[node] = found
    try:
        run_until_told(manager, engine, found.driver)
    finally:
        server.stop()
        found.stop()
        manager.stop()
        engine.stop()
        client.close()

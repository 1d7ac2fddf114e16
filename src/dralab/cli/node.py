"""`dralab node`: run a simulated kubelet against any cluster."""

import json
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dralab.api.releases import version_of
from dralab.cli._components import (
    GATES,
    IMAGE_MAP,
    NAMESPACES,
    RELEASE,
    ROOT,
    RUNTIME,
    address_of,
    check_namespaces,
    features_of,
    release_of,
    run_until_told,
)
from dralab.cli._connection import RequiredConnection
from dralab.cli._options import FILE, FOLDER, opt, options
from dralab.cli._output import echo_table
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.files.reading import read_own
from dralab.kernel.extras import require
from dralab.kernel.http_client import HttpConnections, UnansweredError

if TYPE_CHECKING:
    from dralab.api.resource.features import Features
    from dralab.runtime.remote import RemoteClient


# Where runtimes look by default, the last one first.
CDI_ROOTS = (Path("/etc/cdi"), Path("/var/run/cdi"))


@click.command()
@options
def node(
    *,
    connection: RequiredConnection,
    name: str = opt("The node's name.", required=True),
    root: Path = ROOT,
    cdi_roots: tuple[Path, ...] = opt(
        "A directory of CDI files to read besides /etc/cdi and /var/run/cdi; repeatable, the last "
        "one wins.",
        FOLDER,
        flags="--cdi-root",
        envvar="CDI_ROOT",
    ),
    runtime: str = RUNTIME,
    images: tuple[str, ...] = IMAGE_MAP,
    namespaces: bool = NAMESPACES,
    listen: str = opt(
        "The address of the node's endpoint for logs and exec; port 0 picks a free port.",
        metavar="ADDR:PORT",
        default="127.0.0.1:0",
    ),
    nri_socket: Path | None = opt(
        "The socket for NRI plugins.  [default: ROOT/nri/nri.sock]", FILE
    ),
    kubernetes_version: str = RELEASE,
    feature_gates: str = GATES,
    drivers: bool = opt(
        "Print the drivers registered with the node that runs with this --root, and exit."
    ),
) -> None:
    """Run a simulated kubelet against any cluster until Ctrl-C or SIGTERM.

    Drivers in any language register through the sockets below --root, as with a real kubelet (needs
    `dralab[grpc]`). Container logs are files in `logs` below --root. `kubectl logs`, `exec`,
    `attach` and `port-forward` work through the node's endpoint. Prints `ready: NAME` when it can
    run pods. Its release may be older than the server's.

    Example: `dralab node --kubeconfig lab.kubeconfig --name n1 --root /tmp/k --cdi-root /tmp/cdi`
    """
    if drivers:
        from dralab.cli.node import print_status

        print_status(root)
        return
    from dralab.apiserver.http.connections.listening import ServingError
    from dralab.components import nodes
    from dralab.contracts.cdi_cache import FileDirectory
    from dralab.kernel.randomness import Randomness
    from dralab.node.cgroups import ControlGroups
    from dralab.node.checkpoint import CheckpointError, NodeFileCheckpoint
    from dralab.node.containers import ContainerRuntime
    from dralab.node.endpoint import EndpointServer
    from dralab.node.kubelets import Kubelets
    from dralab.node.log_files import RuntimeWithLogFiles
    from dralab.node.mount_namespaces import NodePaths, service_of, static_cdi_of
    from dralab.node.node_spec import NodeSpec
    from dralab.node.process_runtime import ProcessRuntime
    from dralab.node.simulated_runtime import SimulatedRuntime
    from dralab.objects.metadata import uid_of
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

    host, port = _address(listen)
    release, features = _release(kubernetes_version, feature_gates)
    commands = _commands(images, runtime)
    if namespaces:
        check_namespaces(runtime)
    client = _client(connection, runtime)
    engine = LiveEngine(name="node", workers=8)
    manager = Manager(engine, client, Randomness.from_system())
    directories = cdi_directories(cdi_roots, [static_cdi_of(root)] if namespaces else [])
    places = _places(connection, root, directories[-1])
    paths = NodePaths.of(root, directories[-1], nri_socket.parent if nri_socket else None)
    processes = ProcessRuntime(
        engine,
        commands,
        lambda _node: places,
        (lambda _node: paths) if namespaces else None,
        service_of(client.access.server),
        groups=ControlGroups.found() if namespaces else None,
    )
    containers: ContainerRuntime = processes if runtime == "process" else SimulatedRuntime(engine)
    logs = RuntimeWithLogFiles(containers, root / "logs")
    kubelets = Kubelets(manager, logs, only=name, version=version_of(release))
    manager.caches.when_synced(lambda: logs.forget_all_but({uid_of(p) for p in kubelets.pods}))
    with refusing(CheckpointError, ServingError):
        kubelet = kubelets.add_node(
            NodeSpec(name=name),
            directories=[FileDirectory(path) for path in directories],
            checkpoint=NodeFileCheckpoint(root / "dra_manager_state"),
        )
        endpoint = EndpointServer(kubelets, name, root / "pki", host, port)
    nodes.equip(kubelet, features)
    kubelet.serve(endpoint)
    kubelet.paths = paths if namespaces else NodePaths()
    endpoint.start()
    # A driver may start as soon as the node is ready.
    nodes.make_directories(root)
    sockets: list[Any] = []
    # Only now: what wakes the node's pods for a driver must exist before the driver registers.
    kubelets.on_node = lambda _: nodes.listen(kubelet, root, sockets, nri_socket)
    run_until_told(
        manager,
        engine,
        name,
        first=[lambda: [each.stop() for each in sockets]],
        # From here on nothing restarts containers that end.
        last=[processes.stop, kubelets.stop, endpoint.stop, client.close],
    )


def cdi_directories(given: Sequence[Path], own: Sequence[Path] = ()) -> list[Path]:
    """Return the directories of CDI files that a node reads: both default ones, then `given`.

    `own` are those that stand for the default ones in its pods' mount namespaces. The last one
    wins; a directory that is named again moves to the end.
    """
    paths = [*CDI_ROOTS, *own, *given]
    return list(reversed(dict.fromkeys(reversed(paths))))


def _commands(images: tuple[str, ...], runtime: str) -> dict[str, list[str]]:
    from dralab.node.images import ImageMapError, image_map

    with refusing(ImageMapError, option="--image-map"):
        commands = image_map(images)
    if images and runtime != "process":
        raise click.BadParameter("--image-map needs --runtime process", param_hint="--image-map")
    return commands


def _client(connection: RequiredConnection, runtime: str) -> "RemoteClient":
    """Return a client of the cluster. UsageError, UnusableInput.

    A cluster through which strangers could run programs on this machine is refused.
    """
    require("grpc", "dralab node")
    client = connection.client()
    if runtime == "process" and not client.access.is_authenticated:
        client.close()
        raise click.UsageError(
            f"--runtime process lets clients of {client.access.server} run commands as you, and "
            f"it requires no credential: serve it without --plain"
        )
    return client


def _places(connection: RequiredConnection, root: Path, cdi_root: Path) -> dict[str, str]:
    """Return the environment variables for programs of pods."""
    places = {"KUBELET_ROOT": str(root.absolute()), "CDI_ROOT": str(cdi_root.absolute())}
    if connection.kubeconfig is not None:
        places["KUBECONFIG"] = str(connection.kubeconfig.absolute())
    return places


def _release(version: str, gates: str) -> "tuple[str, Features]":
    release = release_of(version)
    return release, features_of(gates, release)


def _address(listen: str) -> tuple[str, int]:
    host, port = address_of(listen, "127.0.0.1:10250")
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - refused
        raise click.BadParameter(
            f"the server cannot connect to {host}: use an address of this machine",
            param_hint="--listen",
        )
    return host, port


PATIENCE = 10.0


def print_status(root: Path) -> None:
    """Print the sockets below a node's root. UnusableInput: no node answers there."""
    rows: list[list[str]] = []
    problems: list[str] = []
    for each in _plugins(root):
        if "driver" in each:
            state = "Connected" if each["connected"] else "NotConnected"
            rows.append([each["driver"], each["version"], state, each["endpoint"]])
        else:
            problems.append(f"{each['socket']}: {each.get('error') or 'not asked yet'}")
    if rows:
        echo_table([["DRIVER", "VERSION", "STATE", "ENDPOINT"], *rows])
    elif not problems:
        echo(f"no driver has registered below {root / 'plugins_registry'}", err=True)
    for text in problems:
        echo(f"not registered: {text}", err=True)


def _plugins(root: Path) -> list[dict[str, Any]]:
    own = root / "pki"
    try:
        address = read_own(own / "address").decode().strip()
        token = read_own(own / "token").decode().strip()
        read_own(own / "ca.crt")
        context = ssl.create_default_context(cafile=str(own / "ca.crt"))
    except OSError as error:
        raise UnusableInput(f"no node runs with --root {root}: {error}") from error
    try:
        node = HttpConnections(f"https://{address}", tls=context, timeout=PATIENCE)
        reply = node.ask("GET", "/plugins", [("Authorization", f"Bearer {token}")])
        found = json.loads(reply.body)
    except (UnansweredError, ValueError) as error:
        raise UnusableInput(f"the node at {address} does not answer: {error}") from error
    if reply.status != HTTPStatus.OK or "plugins" not in found:
        raise UnusableInput(f"the node at {address} does not answer: HTTP status {reply.status}")
    plugins: list[dict[str, Any]] = found["plugins"]
    return plugins

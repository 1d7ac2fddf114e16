"""`dralab driver classic`: the two programs of the classic fake driver, as the chart runs them."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._components import CDI, ROOT, run_until_told
from dralab.cli._connection import RequiredConnection
from dralab.cli._options import opt, options
from dralab.cli._terminal import LogFormatter
from dralab.cli.apiserver import note
from dralab.cli.errors import UnusableInput
from dralab.kernel.extras import require

if TYPE_CHECKING:
    from dralab.cli._connection import RequiredConnection
    from dralab.runtime.remote import RemoteClient


TEXT: Final = "%(levelname)s %(name)s: %(message)s"
# Verbosity from which everything is logged, as klog's components use it.
DEBUG: Final = 5
LEVELS: Final = {logging.DEBUG: DEBUG, logging.INFO: 1}


class Verbosity(click.IntRange):
    """A level, written `-v 5`, `-v5` or, as Kubernetes' components have it, `-v=5`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the level."""
        level: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(level, param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFlags:
    """How a component asks its server, and how it logs."""

    kube_api_qps: float = opt(
        "Requests to the server per second, on average; 0: no limit.",
        least=0,
        default=5,
        envvar="KUBE_API_QPS",
    )
    kube_api_burst: int = opt(
        "Requests to the server that may be sent at once.",
        least=1,
        default=10,
        envvar="KUBE_API_BURST",
    )
    logging_format: str = opt(
        "Format of log lines.", ["text", "json"], default="text", envvar="LOGGING_FORMAT"
    )
    verbosity: int = opt(
        "Log verbosity: 0 warnings, 1 more, 5 everything.",
        Verbosity(min=0),
        flags="-v --v",
        default=0,
        envvar="V",
    )

    def client(self, connection: "RequiredConnection") -> "RemoteClient":
        """Return a client once the cluster has answered; logging is set up before."""
        from dralab.runtime.throttle import Throttle

        handler = logging.StreamHandler()
        as_json = self.logging_format == "json"
        handler.setFormatter(JsonFormatter() if as_json else LogFormatter(TEXT))
        level = logging.DEBUG if self.verbosity >= DEBUG else logging.INFO
        logging.basicConfig(level=level if self.verbosity else logging.WARNING, handlers=[handler])
        throttle = (
            Throttle(self.kube_api_qps, self.kube_api_burst) if self.kube_api_qps > 0 else None
        )
        return connection.client(throttle=throttle)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the fields of component-base's JSON log format."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line: `ts` in milliseconds, `v` the verbosity it needs."""
        found: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.name}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno >= logging.WARNING:
            found["err" if record.levelno >= logging.ERROR else "warning"] = True
        else:
            found["v"] = LEVELS.get(record.levelno, 0)
        if record.exc_info:
            found["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(found)


NAMESPACE = opt(
    "The namespace of the NodeAllocationStates.", default="fake-system", envvar="POD_NAMESPACE"
)
NODE = opt("The node of the plugin.", envvar="NODE_NAME", required=True)


@click.group("classic")
def group() -> None:
    """Run the fake driver of classic DRA, for `dralab up --api v1,classic`.

    Example: `dralab driver classic controller --kubeconfig lab.kubeconfig`
    """


@group.command("controller")
@options
def controller(
    *, connection: RequiredConnection, flags: ClientFlags, namespace: str = NAMESPACE
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
    run_until_told(manager, engine, "controller", last=[client.close])


@group.command("set-nas-status")
@options
def set_nas_status(
    *,
    connection: RequiredConnection,
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
@options
def plugin(
    *,
    connection: RequiredConnection,
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
    run_until_told(
        manager, engine, found.driver, first=[server.stop, found.stop], last=[client.close]
    )

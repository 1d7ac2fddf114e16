"""`dralab driver run`: run a driver for one node, under any kubelet."""

import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._components import CDI, ROOT, run_until_told
from dralab.cli._connection import RequiredConnection
from dralab.cli._options import arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import note
from dralab.cli.errors import refusing
from dralab.kernel.extras import require

if TYPE_CHECKING:
    from dralab.drivers.driver import Driver
    from dralab.drivers.publishing import SlicePublisher
    from dralab.runtime.client import Client


@click.command("run")
@options
def run(
    *,
    connection: RequiredConnection,
    name: str = arg(),
    node_name: str = opt(
        "The node of the driver.", flags="--node", envvar="NODE_NAME", required=True
    ),
    root: Path = ROOT,
    cdi_root: Path = CDI,
    pod_uid: str = opt(
        "Use separate sockets, for a rolling update: an older instance keeps its own until it ends."
    ),
    fault_texts: tuple[str, ...] = opt(
        "Inject a fault, such as prepare=slow:60x1 or slices=republish:5; `--fault help` lists "
        "them.",
        flags="--fault",
        metavar="CALL=KIND[:SECONDS][xTIMES]",
    ),
    repair_after: float = opt(
        "How long changes of the slices by others stay before they are undone.",
        least=0,
        metavar="SECONDS",
        default=30,
    ),
) -> None:
    """Publish devices and prepare claims until Ctrl-C or SIGTERM.

    NAME is fake, gpu, nic or cpu, or your own class as `module:Class`, imported from the current
    directory. The driver works with `dralab node` and with a real kubelet, and needs
    `dralab[grpc]`. Prints `ready: DRIVER` when the kubelet can register it. Slices, checkpoint and
    CDI files remain when it stops, and it continues from them at the next start.

    Example: `dralab driver run gpu --kubeconfig lab.kubeconfig --node n1 --root /tmp/k`
    """
    from dralab.contracts.cdi_cache import FileDirectory
    from dralab.contracts.wire import SocketError
    from dralab.drivers.checkpoint import DriverFileCheckpoint
    from dralab.drivers.driver import Driver
    from dralab.drivers.faults import FaultyPlugin, described, parse, slice_faults
    from dralab.drivers.hosted_plugin import HostedPlugin
    from dralab.drivers.publishing import SlicePublisher
    from dralab.drivers.sockets import SocketServer
    from dralab.kernel.clock import SECOND
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

    if "help" in fault_texts:
        echo(described())
        return
    require("grpc", "dralab driver run")
    with refusing(ValueError, option="--fault"):
        faults = [parse(text) for text in fault_texts]
    driver = _driver(name, node_name)
    client = connection.client(patient=True)
    with refusing(SocketError, OSError):
        checkpoint = DriverFileCheckpoint(root / "plugins" / driver.name / "checkpoint.json")
        hosted = HostedPlugin(driver, client, FileDirectory(cdi_root), checkpoint)
        plugin = FaultyPlugin(hosted, _Process(), faults) if faults else hosted
        told = [fault.call for fault in faults]
        tells_health = type(driver).health is not Driver.health or "health" in told
        server = SocketServer(plugin, root, pod_uid=pod_uid, health=tells_health)
        server.on_status = lambda error: note(
            f"the kubelet refused the registration: {error}"
            if error
            else "registered with the kubelet"
        )
        server.start()
    engine = LiveEngine(name="driver")
    manager = Manager(engine, client, Randomness.from_system())
    publisher = SlicePublisher(
        manager, mend_after=int(repair_after * SECOND), driver=driver.name, node=node_name
    )

    def begin(_: None) -> None:
        _create_classes(client, driver)
        publisher.publish(driver)

    for fault in slice_faults(faults):
        manager.every(int(fault.seconds * SECOND), _to_slices(publisher, driver, fault.kind))
    # The queue retries what a server that is still starting refuses.
    manager.queue("driver", begin).add(None)
    run_until_told(manager, engine, driver.name, first=[server.stop], last=[client.close])


class _Process:
    """The process, for faults."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        threading.Event().wait(seconds)

    def now(self) -> int:
        """Return the time, in nanoseconds since the epoch."""
        from dralab.kernel.clock import WallClock

        return WallClock().now()

    def die(self, code: int) -> None:
        """Exit at once, without cleaning up."""
        os._exit(code)


def _to_slices(publisher: "SlicePublisher", driver: "Driver", kind: str) -> "Callable[[], None]":
    """Return a function that injects faults into published slices."""
    if kind == "republish":
        return lambda: publisher.renew(driver)
    there = True

    def flip() -> None:
        nonlocal there
        (publisher.withdraw if there else publisher.publish)(driver)
        there = not there

    return flip


def _create_classes(client: "Client", driver: "Driver") -> None:
    from dralab.api.status import ignoring
    from dralab.drivers.catalog import classes
    from dralab.runtime.resources import CLASSES

    for obj in classes(driver):
        # On clusters where drivers may not create classes, the operator creates them.
        with ignoring("AlreadyExists", "Forbidden"):
            client.create(CLASSES, obj)


def _driver(name: str, node: str) -> "Driver":
    from dralab.drivers.catalog import DRIVERS
    from dralab.drivers.driver import Driver

    if name in DRIVERS:
        return DRIVERS[name](node)
    module, _, attribute = name.partition(":")
    if not attribute:
        known = ", ".join(DRIVERS)
        raise click.BadParameter(
            f"unknown driver {name!r}; known: {known}, or your own as module:Class",
            param_hint="NAME",
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    except Exception as error:  # the user's code may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        # A SyntaxError already names the place.
        where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        raise click.BadParameter(
            f"importing {module} failed: {what}{where}", param_hint="NAME"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise click.BadParameter(
            f"{name} is not a subclass of dralab.drivers.driver.Driver", param_hint="NAME"
        )
    return found(node)

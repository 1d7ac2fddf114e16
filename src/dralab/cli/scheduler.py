"""`dralab scheduler`: run the scheduler against any cluster."""

import signal
import threading

import click

from dralab.cli._components import GATES, RELEASE, features_of, release_of
from dralab.cli._connection import RequiredConnection
from dralab.cli._options import opt, options
from dralab.cli._terminal import echo


@click.command()
@options
def scheduler(
    *,
    connection: RequiredConnection,
    name: str = opt(
        "Schedule only pods with this schedulerName.",
        flags="--scheduler-name",
        default="default-scheduler",
    ),
    leader_elect: bool = opt(
        "Act only while holding the lease kube-system/kube-scheduler, so that one of several "
        "schedulers acts.",
        flags="--leader-elect/--no-leader-elect",
        default=True,
    ),
    seed: int | None = opt("Random seed for the share IDs of devices, for repeatable runs."),
    kubernetes_version: str = RELEASE,
    feature_gates: str = GATES,
    verbose: bool = opt("Log each retry and its reason.", flags="-v --verbose"),
) -> None:
    """Run the scheduler, devices included, against any cluster until Ctrl-C or SIGTERM.

    Its release may be older than the server's; GenericWorkload=true schedules gangs. It also
    schedules pods that use classic DRA if the server serves it (`dralab up --api
    v1,classic`). Prints `ready` once its caches have synced. If another scheduler of the same name
    holds the lease, this one waits, and takes over at most 15 seconds after that one ends.

    Example: `dralab scheduler --kubeconfig lab.kubeconfig`
    """
    from dralab.allocation.selectors import CelSelectorCompiler
    from dralab.api.resource.features import off_in
    from dralab.cli.apiserver import note
    from dralab.components import older_parts
    from dralab.components.control_plane import election, new_identity
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.client import serves
    from dralab.runtime.garbage import collect_rarely
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager
    from dralab.scheduler.scheduler import Scheduler

    release = release_of(kubernetes_version)
    off = off_in(release, features_of(feature_gates, release))
    client = connection.client(verbose=verbose)
    note(f"scheduling {name} at {client.access.server}")
    # Writing a pod's claims and binding it wait for the network: several at a time.
    engine = LiveEngine(name="scheduler", workers=8)
    randomness = Randomness.from_system() if seed is None else Randomness(seed)
    manager = Manager(engine, client, randomness)
    made = Scheduler(manager, CelSelectorCompiler(), name=name, off=off)
    for parts in older_parts.PARTS:
        if serves(client, parts.sign):
            parts.scheduling(manager, made)
    leadership = election(engine, client, made, new_identity()) if leader_elect else None

    def ready() -> None:
        collect_rarely()
        echo("ready")

    manager.caches.when_synced(ready)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    manager.start()
    engine.start()
    if leadership is not None:
        leadership.start()
    over.wait()
    note("stopping")
    manager.stop()
    if leadership is not None:
        leadership.stop()
    engine.stop()
    client.close()

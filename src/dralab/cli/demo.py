"""`dralab demo`: run the example and show which pod gets which device."""

import threading
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._options import opt, options
from dralab.cli._output import echo_table
from dralab.cli._terminal import echo

if TYPE_CHECKING:
    from dralab.cluster import Cluster
    from dralab.components.example import PodOutcome
    from dralab.objects.metadata import NamespacedName

SCHEDULE_WAIT: Final = 30.0
PAUSE: Final = 0.05
CALM: Final = 10


@click.command()
@options
def demo(*, show: bool = opt("Print the manifests of the example and exit.")) -> None:
    """Start a cluster, load the example, and show which devices each pod got, or why none.

    The example has two nodes with foozer GPUs and SR-IOV cards. One pod requests a GPU, one
    requests two GPUs of the same model, two share a claim, and one requests a GPU that no node has.

    Example: `dralab demo`; to keep the same cluster running: `dralab up`
    """
    from dralab.apiserver.http.connections.listening import AddressInUse
    from dralab.cli.apiserver import DEFAULT, note
    from dralab.cluster import Cluster, Options
    from dralab.components import example
    from dralab.components.control_plane import ControlPlane
    from dralab.node.listening_ports import holder_of

    if show:
        echo(example.text(), nl=False)
        return
    host, _, port = DEFAULT.rpartition(":")
    cluster = Cluster(Options(host=host, port=int(port)), components=[ControlPlane()])
    try:
        cluster.__enter__()
    except AddressInUse as error:
        error.holder = holder_of(error.port)
        note(f"{error.fact}: serving on a free port instead")
        cluster = Cluster(Options(host=host), components=[ControlPlane()])
        cluster.__enter__()
    try:
        note(f"serving the Kubernetes API at {cluster.url}")
        pods = example.load(cluster.client)
        if not _wait(cluster, pods):
            raise click.ClickException(
                f"the example was not scheduled within {SCHEDULE_WAIT:.0f} s; the machine may be "
                f"overloaded"
            )
        _show(example.placements(cluster.client, pods), _pages(cluster))
    finally:
        cluster.__exit__(None, None, None)


def _wait(cluster: "Cluster", pods: "list[NamespacedName]") -> bool:
    """Wait until every pod has a node or a reason, and nothing changes any more."""
    from dralab.components import example

    pause, seen, calm = threading.Event(), None, 0
    for _ in range(int(SCHEDULE_WAIT / PAUSE)):
        now = example.placements(cluster.client, pods)
        calm = calm + 1 if now == seen and example.settled(cluster.client, pods) else 0
        if calm >= CALM:
            return True
        seen = now
        pause.wait(PAUSE)
    return False


def _pages(cluster: "Cluster") -> dict[str, str]:
    """Return, by pod, the page that says why it waits."""
    from dralab.explanation.why import why
    from dralab.runtime.reading import read_cluster
    from dralab.scheduling.snapshot import Snapshot

    snapshot = Snapshot(read_cluster(cluster.client))
    found = {each.name: why(snapshot, each) for each in snapshot.pending()}
    return {name: told.page() for name, told in found.items() if told is not None}


def _show(outcomes: "list[PodOutcome]", pages: dict[str, str]) -> None:
    rows = [("POD", "NODE", "CLAIM", "DEVICES")]
    for outcome in outcomes:
        if not outcome.node:
            continue
        claims = dict.fromkeys(given.claim for given in outcome.devices)
        for number, claim in enumerate(claims):
            devices = ", ".join(
                f"{given.request}: {given.device} of {given.driver}"
                for given in outcome.devices
                if given.claim == claim
            )
            first = (outcome.pod, outcome.node) if number == 0 else ("", "")
            rows.append((*first, claim, devices))
    echo_table(rows)
    for outcome in outcomes:
        if not outcome.node:
            echo(f"\n{pages.get(outcome.pod, outcome.why)}")

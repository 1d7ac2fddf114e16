"""`dralab incident`: serve a broken cluster, and check whether it is mended."""

import os
import threading
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._connection import RequiredConnection
from dralab.cli._help import EverydayCommand
from dralab.cli._options import opt, options, options_of
from dralab.cli._output import echo_json, formats
from dralab.cli._terminal import echo
from dralab.cli.apiserver import serve
from dralab.cli.errors import UnusableInput
from dralab.values.near_names import not_one_of

if TYPE_CHECKING:
    from dralab.cluster import Cluster
    from dralab.components.incidents import Incident

# Controllers have 15 seconds to act on a repair before it counts as none.
LOOKS: Final = 60
PAUSE: Final = 0.25
RETRYING: Final = (
    "If you just mended it, check again in a minute: controllers retry more and more rarely."
)
WIDTH: Final = 80


@click.command(
    cls=EverydayCommand,
    everyday=("check", "hint", "kubeconfig", "listen", "output"),
    epilog="""Examples:

\b
  dralab incident
  dralab incident typo-in-driver --kubeconfig lab.kubeconfig
  kubectl --kubeconfig lab.kubeconfig describe pod -n ml
  dralab incident typo-in-driver --check --kubeconfig lab.kubeconfig
""",
)
@click.argument("name", default="")
@options_of(serve)
@options
def incident(
    *,
    name: str,
    check: bool = opt("Check whether the cluster is mended, and exit."),
    hint: int | None = opt("Print the first N hints and exit.", least=1, metavar="N"),
    output: str = formats("table", "json"),
    **options: Any,
) -> None:
    """Serve a cluster with something wrong, to be mended with kubectl.

    Without NAME, it lists the incidents. With it, it serves the cluster in memory until Ctrl-C, and
    prints what a user reports: two nodes with fake devices, a scheduler and controllers. Mend it
    from another terminal; --check says whether it is mended, and what is still wrong. A change that
    only hides the problem, such as a smaller request, does not count.
    """
    from dralab.components import incidents

    if not name:
        if check or hint:
            option = "--check" if check else "--hint"
            raise click.UsageError(f"{option} needs NAME: the incident that the cluster shows")
        _list([incidents.read(each) for each in incidents.names()], output)
        return
    try:
        found = incidents.read(name)
    except KeyError:
        raise click.BadParameter(
            not_one_of(name, incidents.names(), "`dralab incident`"), param_hint="NAME"
        ) from None
    if hint:
        for text in found.hints[:hint]:
            echo(text)
    elif check:
        kubeconfig = options["kubeconfig"] or os.environ.get("KUBECONFIG")
        _check(found, Path(kubeconfig) if kubeconfig else None)
    else:
        _serve(found, options)


def _list(found: "list[Incident]", output: str) -> None:
    if output == "json":
        echo_json([{"name": e.name, "level": e.level, "report": e.report.strip()} for e in found])
        return
    for each in sorted(found, key=lambda each: (each.level, each.name)):
        echo(f"{each.name} (level {each.level})")
        echo(fill(each.report.strip(), WIDTH, initial_indent="  ", subsequent_indent="  "))


def _check(found: "Incident", kubeconfig: Path | None) -> None:
    from dralab.api.status import ApiError
    from dralab.components import incidents

    client = RequiredConnection(kubeconfig=kubeconfig, context="", server="").client()
    pause, wrong = threading.Event(), [""]
    try:
        for _ in range(LOOKS):
            if not (wrong := incidents.faults(found, client)):
                break
            pause.wait(PAUSE)
    except ApiError as error:
        raise UnusableInput(error.message) from error
    if wrong:
        echo("\n".join(wrong))
        echo(RETRYING, err=True)
        raise SystemExit(1)
    echo("mended")


def _serve(found: "Incident", options: dict[str, Any]) -> None:
    from dralab.api.status import ApiError
    from dralab.components import incidents
    from dralab.components.control_plane import ControlPlane
    from dralab.components.nodes import NodeOptions, Nodes
    from dralab.runtime.cluster_clock import ClusterClock

    clock = ClusterClock()

    def begin(cluster: "Cluster") -> None:
        clock.advance(1)
        try:
            incidents.perform(found.setup, cluster.client, clock.advance)
        except ApiError as error:
            raise UnusableInput(f"the cluster cannot be prepared: {error.message}") from error
        echo(found.report.strip())

    options["data"] = options["data"] or ":memory:"
    wanted = NodeOptions(named=incidents.NODES, drivers=found.drivers)
    serve(**options, components=[ControlPlane(), Nodes(wanted)], begin=begin, clock=clock)

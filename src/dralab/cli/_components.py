"""Options and main loop of the commands that run one component against any cluster."""

import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._options import FOLDER, opt
from dralab.cli._terminal import echo
from dralab.cli.errors import refusing

if TYPE_CHECKING:
    from dralab.api.resource.features import Features
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.manager import Manager

RELEASE = opt("The Kubernetes release to follow, 1.32 to 1.37.", metavar="1.NN")
GATES = opt(
    "Feature gates of that release to enable or disable; AllAlpha and AllBeta name all of a stage.",
    metavar="GATE=true|false[,…]",
)
ROOT = opt(
    "The kubelet's root directory: plugins, registrations, checkpoints.",
    FOLDER,
    envvar="KUBELET_ROOT",
    default=Path("/var/lib/kubelet"),
)
CDI = opt("The directory of CDI files.", FOLDER, envvar="CDI_ROOT", default=Path("/var/run/cdi"))


class RuntimeChoice(click.Choice[str]):
    """Takes `pretend`, the former name of `simulated`, with a warning."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the runtime's present name."""
        if value == "pretend":
            echo("warning: --runtime pretend is now --runtime simulated", err=True)
            value = "simulated"
        return super().convert(value, param, ctx)


RUNTIME = opt(
    "Simulate containers, or run their commands as processes on this machine.",
    RuntimeChoice(["simulated", "process"]),
    default="simulated",
)
IMAGE_MAP = opt(
    "With --runtime process: the program on this machine to run for an image. /FOLDER/ goes "
    "before PATH instead, and the container's own command stays; a command after it is for "
    "containers that have none, one after -- for those without arguments too. /FILES/. has the "
    "files of the image, which its containers see at their paths (root and --mount-namespaces). "
    "@FILE reads a YAML map, @DIRECTORY all its *.yaml files.",
    flags="--image-map",
    metavar="IMAGE=COMMAND",
)
NAMESPACES = opt(
    "With --runtime process: give each container a mount namespace, with its mounts and the "
    "node's directories at the paths that its pod names.",
    flags="--mount-namespaces",
)
CLUSTER_CIDR = opt(
    "With --mount-namespaces, as root: give each pod a network namespace, with an address of "
    "its node's part of this network, such as 10.244.0.0/16.  [default: pods share the machine's "
    "network]",
    metavar="CIDR",
)
CLUSTER_DNS = opt(
    "With --cluster-cidr: the name server of pods.  [default: the tenth address of the "
    "Services' network]",
    metavar="ADDR",
)


def check_namespaces(runtime: str) -> None:
    """Refuse --mount-namespaces where containers cannot have them. BadParameter, UnusableInput."""
    from dralab.cli.errors import UnusableInput
    from dralab.node.mount_namespaces import problem

    if runtime != "process":
        raise click.BadParameter(
            "--mount-namespaces needs --runtime process", param_hint="--mount-namespaces"
        )
    if text := problem():
        raise UnusableInput(
            f"this machine lets you have no mount namespaces ({text}): run as root, or allow user "
            "namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)"
        )


def release_of(text: str) -> str:
    """Return the release that --kubernetes-version names. click.BadParameter."""
    from dralab.api.releases import MIXED, ReleaseError, parse

    with refusing(ReleaseError, option="--kubernetes-version"):
        return parse(text.removeprefix("kube=")) if text else MIXED


def features_of(text: str, release: str = "", *, of_lab: bool = True) -> "Features":
    """Return the gates that are on after --feature-gates. click.BadParameter."""
    from dralab.api.resource.features import GateError, default_of, ignored, of_labs, with_gates

    usual = default_of(release) | (of_labs(release) if of_lab else frozenset())
    with refusing(GateError, option="--feature-gates"):
        found = with_gates(text, usual, release)
    if names := ignored(text):
        echo(f"feature gates without effect in dralab: {', '.join(names)}", err=True)
    return found


def address_of(text: str, example: str) -> tuple[str, int]:
    """Return the host and port of --listen. BadParameter."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(
            f"{text!r} is not ADDR:PORT, such as {example}", param_hint="--listen"
        )
    return host, int(port)


def duration_of(text: str, option: str) -> int:
    """Return the nanoseconds of a duration such as 1h30m or, in seconds, 90. BadParameter."""
    from dralab.kernel.durations import duration

    try:
        return duration(float(text) if text.isdigit() else text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a duration such as 90s, 1h30m or 7d", param_hint=option
        ) from None


def run_until_told(
    manager: "Manager",
    engine: "LiveEngine",
    name: str,
    *,
    first: Sequence[Callable[[], object]] = (),
    last: Sequence[Callable[[], object]] = (),
) -> None:
    """Run a manager until Ctrl-C or SIGTERM; print `ready: NAME` once its caches have synced.

    Then it is stopped with its engine, and what is to stop before and after them.
    """
    from dralab.runtime.garbage import collect_rarely

    def ready() -> None:
        collect_rarely()
        echo(f"ready: {name}")

    manager.caches.when_synced(ready)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        manager.start()
        engine.start()
        over.wait()
    finally:
        for stop in (*first, manager.stop, engine.stop, *last):
            stop()

"""`dralab driver check` and `dralab driver checks`: conformance checks of DRA drivers."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._connection import ClusterConnection
from dralab.cli._options import FILE, FOLDER, arg, opt, options
from dralab.cli._output import echo_json, echo_table, formats, places
from dralab.cli._terminal import echo, echo_json_text
from dralab.cli.errors import UnusableInput, refusing
from dralab.files.reading import read
from dralab.kernel.extras import require

if TYPE_CHECKING:
    from dralab.drivercheck.bench import HealthHook
    from dralab.drivercheck.catalog import Check
    from dralab.drivercheck.check_node import CheckedNode
    from dralab.drivercheck.runner import CheckResult, Report
    from dralab.drivercheck.targets import DriverTarget, Places

# What `dralab driver run` imports when it runs.
PRELOADED: Final = (
    "dralab.cli.driver_run",
    "dralab.contracts._generated.dra_v1_pb2",
    "dralab.contracts._generated.dra_v1beta1_pb2",
    "dralab.contracts._generated.health_v1alpha1_pb2",
    "dralab.contracts._generated.registration_pb2",
    "dralab.contracts.cdi_cache",
    "dralab.drivers.catalog",
    "dralab.drivers.checkpoint",
    "dralab.drivers.faults",
    "dralab.drivers.hosted_plugin",
    "dralab.drivers.publishing",
    "dralab.drivers.sockets",
    "dralab.runtime.live",
    "dralab.runtime.manager",
    "dralab.runtime.remote",
    "grpc",
)


@click.command("check", context_settings={"ignore_unknown_options": True})
@options
def check(
    *,
    connection: ClusterConnection,
    target: tuple[str, ...] = arg(click.UNPROCESSED),
    only: tuple[str, ...] = opt("Run only this check, group or pattern (crash.*).", metavar="ID"),
    chart: Path | None = opt(
        "In place of TARGET: a chart's directory (needs helm) or its manifests. The container of "
        "the DaemonSet that mounts plugins_registry is run, in a mount namespace with its paths.",
        click.Path(exists=True, path_type=Path),
    ),
    images: tuple[str, ...] = opt(
        "With --chart: the program to run for an image, as in `dralab node`.",
        flags="--image-map",
        metavar="IMAGE=COMMAND",
    ),
    skip: tuple[str, ...] = opt("Leave out this check, group or pattern.", metavar="ID"),
    variables: tuple[str, ...] = opt(
        "An environment variable of the driver; placeholders are replaced in it too.",
        flags="--env",
        metavar="NAME=VALUE",
    ),
    cdi_roots: tuple[Path, ...] = opt(
        "With a socket: a directory of CDI files; default: /etc/cdi and /var/run/cdi.",
        FOLDER,
        flags="--cdi-root",
    ),
    node: str = opt("With a socket: the driver's node."),
    write: tuple[Path, ...] = opt(
        "Write the report to this file, by its ending: .json, .xml (JUnit), .md (a page) or .svg "
        "(a badge). May be repeated.",
        FILE,
        metavar="FILE",
    ),
    strict: bool = opt("Also exit with code 1 if a SHOULD is not kept."),
    workers: int = opt(
        "How many instances of the driver to check in parallel.", least=1, most=32, default=6
    ),
    seed: int = opt("The seed of random choices.", default=0),
    claims: int = opt("How many claims the load checks prepare.", least=8, default=1_000),
    crash_points: int = opt(
        "At how many random moments the driver is killed during prepare, and during unprepare.",
        least=1,
        default=10,
    ),
    previous: str = opt(
        "The command of an older version: upgrade and rollback are checked with it.",
        metavar="COMMAND",
    ),
    health_hook: str = opt(
        "A command that makes {device} {health}: `healthy` or `unhealthy`.", metavar="COMMAND"
    ),
    verbose: bool = opt("Print each check as it ends."),
    output: str = formats("text", "json"),
) -> None:
    """Check that a DRA driver keeps the kubelet's contract, without a cluster or hardware.

    TARGET is the driver's command, with `{node}`, `{kubeconfig}`, `{cdi}`, `{plugins}`,
    `{registry}`, `{root}` and `{pod_uid}` where it names them; or a built-in driver or
    `module:Class`, as in `dralab driver run`; or the registration socket of a driver that runs
    already, with the --kubeconfig and the --node it has. Options of check come before TARGET; put
    -- between them.

    Exit code 0: every MUST is kept; 1: one is not; 2: nothing could be checked.

    Example: `dralab driver check -- ./my-driver --node={node} --kubeconfig={kubeconfig}`
    """
    from dralab.drivercheck import reports
    from dralab.drivercheck.bench import Bench
    from dralab.drivercheck.rules import CheckLimits, Shared
    from dralab.drivercheck.runner import Runner
    from dralab.drivercheck.targets import SocketTarget, TargetError

    require("grpc", "dralab driver check")
    targets = places(write, *reports.WRITERS)
    if bool(target) == bool(chart):
        raise click.UsageError(
            "Missing argument 'TARGET': a command, module:Class or socket; --chart takes its place."
        )
    chosen = _chosen(only, skip)
    options: dict[str, Any] = {
        "limits": replace(CheckLimits(), claims=claims, crash_points=crash_points),
        "seed": seed,
        "shared": Shared(),
        "previous": _command(shlex.split(previous), variables) if previous else None,
        "health_hook": _hook(health_hook) if health_hook else None,
    }
    where = _surroundings(target, cdi_roots, node, connection) if target else None
    if chart:
        from dralab.drivercheck.chart_target import paths_of

        own = _chart(chart, images, _variables(variables))
        make = partial(Bench, own, paths=paths_of, **options)
    elif where is None:
        own = _command(target, variables)
        make = partial(Bench, own, **options)
    else:
        workers = 1
        make = partial(Bench, SocketTarget(where.socket), surroundings=where, **options)

    def tell(result: "CheckResult") -> None:
        if verbose:
            mark = reports.MARKS[result.outcome]
            echo(f"{mark} {result.check.id} {result.seconds:.1f} s", err=True)

    # Drivers are in sessions of their own: who ends the command ends them, too.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        report = Runner(make, chosen, lanes=workers, on_result=tell).run()
    except TargetError as error:
        raise UnusableInput(str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, before)
    for ending, path in targets.items():
        path.write_bytes(reports.WRITERS[ending](report))
    _print(report, output)
    failed = not report.conformant or (strict and any(map(_unkept, report.results)))
    sys.exit(1 if failed else 0)


@click.command("checks")
@options
def checks(
    *,
    only: tuple[str, ...] = opt("List only this check, group or pattern.", metavar="ID"),
    output: str = formats("text", "json"),
) -> None:
    """List the conformance checks of DRA drivers: id, level, rule and its source.

    Example: `dralab driver checks --only prepare`
    """
    chosen = _chosen(only, ())
    if output == "json":
        echo_json(
            [
                {
                    "id": each.id,
                    "group": each.group,
                    "level": each.level,
                    "sentence": each.sentence,
                    "source": each.source,
                    "needs": sorted(each.needs),
                }
                for each in chosen
            ]
        )
        return
    rows = [["ID", "LEVEL", "RULE"], *([c.id, str(c.level), c.sentence] for c in chosen)]
    echo_table(rows)


def _chosen(only: Sequence[str], skip: Sequence[str]) -> "list[Check]":
    from dralab.drivercheck.catalog import selected
    from dralab.drivercheck.groups import CHECKS

    with refusing(ValueError, kind=click.UsageError):
        left_out = {check.id for check in selected(CHECKS, skip)} if skip else set()
        found = [check for check in selected(CHECKS, only) if check.id not in left_out]
    if not found:
        raise click.UsageError("--only and --skip leave no check")
    return found


def _surroundings(
    target: Sequence[str], cdi_roots: Sequence[Path], node: str, connection: ClusterConnection
) -> "CheckedNode | None":
    """Return where the driver runs already; None if the bench starts it."""
    from dralab.drivercheck.check_node import CheckedNode

    path = Path(target[0])
    if len(target) == 1 and path.is_socket():
        if not connection or not node:
            raise click.UsageError("a socket needs --node and --kubeconfig: those of its driver")
        return CheckedNode(
            client=connection.client(),
            node=node,
            socket=path.absolute(),
            cdi=[root.absolute() for root in cdi_roots] or [Path("/etc/cdi"), Path("/var/run/cdi")],
        )
    if connection or node or cdi_roots:
        raise click.UsageError(
            "--kubeconfig, --server, --node and --cdi-root are for a driver's socket: a command "
            "gets a server and directories of the bench's own"
        )
    return None


def _hook(command: str) -> "HealthHook":
    """Return a function that runs the command of --health-hook."""
    from dralab.drivercheck.targets import filled

    words = shlex.split(command)
    if not words:
        raise click.BadParameter("it is empty", param_hint="--health-hook")

    def run(places: "Places", device: str, healthy: bool) -> None:
        known = places.words() | {"device": device, "health": "healthy" if healthy else "unhealthy"}
        subprocess.run(  # noqa: S603 - the user's own command
            [filled(word, known) for word in words],
            check=True,
            timeout=30,
            env={**os.environ, **places.variables()},
        )

    return run


def _command(target: Sequence[str], variables: Sequence[str]) -> "DriverTarget":
    from dralab.drivercheck.targets import CommandTarget
    from dralab.drivers.catalog import DRIVERS

    env = _variables(variables)
    first = target[0]
    if first in DRIVERS or (":" in first and "/" not in first):
        from dralab.drivercheck.forked_target import ForkedTarget

        own = [
            *(first, "--node", "{node}", "--kubeconfig", "{kubeconfig}"),
            *("--root", "{root}", "--cdi-root", "{cdi}", "--pod-uid", "{pod_uid}"),
            # The default is 30 s, as in the Go library: the bench would wait for nothing else.
            *("--repair-after", "1", *target[1:]),
        ]
        title = " ".join(["dralab driver run", *target])
        return ForkedTarget(_be_driver, own, PRELOADED, env, title)
    program = shutil.which(first)
    if program is None:
        raise click.BadParameter(
            f"{first!r} is neither a program, nor a socket, nor one of {', '.join(DRIVERS)}, nor "
            "module:Class",
            param_hint="TARGET",
        )
    return CommandTarget([str(Path(program).absolute()), *target[1:]], env)


def _variables(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
        found[name] = value
    return found


def _chart(chart: Path, images: Sequence[str], env: dict[str, str]) -> "DriverTarget":
    """Return the driver of a chart, or of manifests."""
    from dralab.api.yaml_documents import YamlError, documents
    from dralab.drivercheck.chart_target import ChartTarget, driver_of
    from dralab.drivercheck.targets import TargetError
    from dralab.node.images import ImageMapError, image_map

    try:
        content = _rendered(chart) if chart.is_dir() else read(chart)
        found = [one.value for one in documents(content) if isinstance(one.value, dict)]
        driver_of(found)
        return ChartTarget(found, image_map(images), env)
    except ImageMapError as error:
        raise click.BadParameter(str(error), param_hint="--image-map") from error
    except (OSError, YamlError, TargetError) as error:
        raise click.BadParameter(f"{chart}: {error}", param_hint="--chart") from error


def _rendered(chart: Path) -> bytes:
    """Return the manifests of a chart's directory, by helm."""
    from dralab.node.node_status import VERSION

    helm = shutil.which(os.environ.get("DRALAB_HELM", "helm"))
    if helm is None:
        raise click.BadParameter(
            f"{chart} is a directory, and there is no helm on the PATH: give a file with the "
            "output of helm template",
            param_hint="--chart",
        )
    # Without a cluster, helm takes it to be of the version that it was built with, or of 1.20, and
    # to serve what that did. Some charts refuse the namespace default.
    place = ["--namespace", "driver-check", "--kube-version", VERSION]
    for version in ("v1", "v1beta2", "v1beta1"):
        place += ["--api-versions", f"resource.k8s.io/{version}"]
    command = [helm, "template", "check", str(chart), *place]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - the user's own
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise click.BadParameter(f"helm template {chart}: {why}", param_hint="--chart")
    return done.stdout


def _be_driver(arguments: Sequence[str]) -> None:
    """Run `dralab driver run` in a process that was forked for it."""
    from dralab.cli.driver_run import run

    run.main(list(arguments), prog_name="dralab driver run")


def _unkept(result: "CheckResult") -> bool:
    from dralab.drivercheck.reports import TOLD

    return result.outcome in TOLD


def _print(report: "Report", output: str) -> None:
    from dralab.drivercheck import reports

    if output == "json":
        echo_json_text(reports.as_json(report), nl=False)
        return
    for line in reports.failures(result for result in report.results if _unkept(result)):
        echo(line)
    echo_table(reports.matrix(report))
    echo(f"{report.driver or report.target}: {reports.verdict(report)} ({report.seconds:.1f} s)")

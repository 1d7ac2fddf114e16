"""`dralab apiserver`: the API server alone; and what it shares with `dralab up`."""

import asyncio
import contextlib
import gc
import ipaddress
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dralab.cli._components import address_of
from dralab.cli.errors import Unusable

if TYPE_CHECKING:
    from dralab.cluster import Cluster, Component, Options

Command = TypeVar("Command", bound=Callable[..., Any])
# "dra" on a telephone's keys would be 372; this one is free in every list of known ports.
DEFAULT: Final = "127.0.0.1:55441"


def server_options(command: Command) -> Command:
    """Add the options of whatever serves an API."""
    for option in reversed(
        [
            click.option(
                "--listen",
                metavar="ADDR:PORT",
                help=f"Where to serve; port 0 is any free one.  [default: {DEFAULT}, or a free "
                "port where that is taken]",
            ),
            click.option(
                "--kubeconfig",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Where to write the kubeconfig.  [default: beside the data]",
            ),
            click.option(
                "--data",
                metavar="DIR|:memory:",
                default=None,
                help="Where to keep the objects.  [default: dralab's place among your own data]",
            ),
            click.option(
                "--durability",
                type=click.Choice(["fsync", "relaxed"]),
                default="fsync",
                show_default=True,
                help="Whether a write is on the disk before it is answered, or survives the end "
                "of this process but perhaps not a power cut.",
            ),
            click.option(
                "--feature-gates",
                metavar="GATE=true|false[,…]",
                default="",
                help="Feature gates to switch on or off, as kube-apiserver names "
                "them; AllAlpha=true for all that 1.36 leaves off.",
            ),
            click.option(
                "--tls/--plain",
                default=True,
                show_default=True,
                help="Serve https by a CA of its own and ask for a token, or plain HTTP that asks "
                "for nothing: on the loopback alone, and not with --runtime process.",
            ),
            click.option(
                "--accept-hosts",
                metavar="NAME[,NAME]",
                default="",
                help="Names by which clients call the server, beside localhost: its certificate "
                "has them, and without a token requests for other names are refused.",
            ),
            click.option(
                "--node-network",
                "node_networks",
                multiple=True,
                metavar="CIDR",
                help="Where nodes of other processes may be asked for logs and the like, beside "
                "this machine's loopback.",
            ),
        ]
    ):
        command = option(command)
    return command


@click.command()
@server_options
@click.option("--token", default="", help="Ask for this token instead of one that is made.")
@click.option(
    "--service-accounts/--no-service-accounts",
    default=True,
    show_default=True,
    help="Whether pods without a service account get `default`.",
)
@click.option(
    "--api-versions",
    type=click.Choice(["all", "default"]),
    default="all",
    show_default=True,
    help="Serve all versions, or those that a real server serves unasked.",
)
def apiserver(*, token: str, service_accounts: bool, api_versions: str, **options: Any) -> None:
    """Serve the Kubernetes API, and nothing else: no scheduler, no controllers, no nodes.

    Prints `ready: URL` when clients can come, and stops on Ctrl-C or SIGTERM.

    Example: `dralab apiserver --data :memory: --kubeconfig lab.kubeconfig`
    """
    serve(
        **options,
        token=token,
        service_accounts=service_accounts,
        all_versions=api_versions == "all",
    )


def serve(
    *,
    listen: str | None,
    kubeconfig: Path | None,
    data: str | None,
    durability: str,
    tls: bool,
    feature_gates: str = "",
    node_networks: Sequence[str] = (),
    accept_hosts: str = "",
    token: str = "",
    service_accounts: bool = True,
    all_versions: bool = True,
    profiles: Sequence[str] = ("v1", "k8srm"),
    components: Sequence["Component"] = (),
    begin: "Callable[[Cluster], None]" = lambda _: None,
) -> None:
    """Serve until told to stop; `begin` is called once with the running cluster, before `ready`."""
    from dralab.api.resource.features import GateError, with_gates
    from dralab.apiserver.http.serving import AddressInUse, ServingError
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.cluster import MEMORY, Cluster, Options

    try:
        features = with_gates(feature_gates)
    except GateError as error:
        raise click.BadParameter(str(error), param_hint="--feature-gates") from error
    host, port = address_of(listen or DEFAULT, DEFAULT)
    if not tls:
        _check_plain(host, token)
    place = data or str(default_data())
    options = Options(
        host=host,
        port=port,
        data=place,
        durability=durability,  # type: ignore[arg-type]  # click has checked the choice
        tls=tls,
        token=token,
        service_accounts=service_accounts,
        all_versions=all_versions,
        profiles=profiles,
        features=features,
        node_networks=[_network(text) for text in node_networks],
        accept_hosts=[name.strip() for name in accept_hosts.split(",") if name.strip()],
    )
    if kubeconfig is None and place != MEMORY:
        kubeconfig = Path(place) / "kubeconfig"
    _raise_limits()
    try:
        try:
            _run(_serve(Cluster(options, components=components), kubeconfig, begin))
        except AddressInUse:
            if listen is not None:
                raise
            note(f"{DEFAULT} is taken: serving on a free port instead")
            free = replace(options, port=0)
            _run(_serve(Cluster(free, components=components), kubeconfig, begin))
    except (StorageUnavailable, ServingError) as error:
        raise Unusable(str(error)) from error


def _run(serving: Coroutine[Any, Any, None]) -> None:
    from dralab.cluster import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serving)


async def _serve(
    cluster: "Cluster", kubeconfig: Path | None, begin: "Callable[[Cluster], None]"
) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with cluster:
        path = kubeconfig or cluster.kubeconfig
        try:
            cluster.write_kubeconfig(path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise Unusable(f"cannot write the kubeconfig {path}: {why}") from error
        await asyncio.to_thread(begin, cluster)
        _tell(cluster.options, path)
        # What the start has made lives as long as the server: no collection looks at it again.
        gc.collect()
        gc.freeze()
        # Requests make few cycles and many mappings: look at the young ones now and then, at all
        # of them rarely.
        gc.set_threshold(10_000, 20, 50)
        # A busy scheduler in this process hands over to the server each millisecond instead of
        # each five: the median of a get beside one goes from 5.3 to 1.3 ms.
        sys.setswitchinterval(0.001)
        click.echo(f"ready: {cluster.url}")
        await over.wait()
        note("stopping")


def _tell(options: "Options", kubeconfig: Path) -> None:
    if not options.tls:
        note("plain HTTP without a token: every program on this machine is the administrator")
    note(f"try: kubectl --kubeconfig {kubeconfig} get namespaces")


def _check_plain(host: str, token: str) -> None:
    """Refuse what is only safe with TLS and a token. UsageError."""
    from dralab.apiserver.http.guard import is_loopback

    if token:
        raise click.UsageError("--token needs TLS (kubectl sends no token without): omit --plain")
    if not is_loopback(host):
        raise click.UsageError(
            f"--plain serves on the loopback alone, not on {host}: anyone there would be the "
            "administrator. Omit --plain"
        )


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; a network is one such as 10.0.0.0/8", param_hint="--node-network"
        ) from error


def default_data() -> Path:
    """Return where objects are kept if nobody says: as the XDG base directories say."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "dralab" / "cluster"


def _raise_limits() -> None:
    """Allow as many connections as the system lets this process have."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def note(text: str) -> None:
    """Tell the user something that is not the result."""
    click.echo(text, err=True)
    sys.stderr.flush()

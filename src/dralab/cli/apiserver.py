"""`dralab apiserver`: the API server alone, and what it shares with `dralab up`."""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import click

from dralab.cli._authentication import AdmissionOptions, AuthenticationOptions
from dralab.cli._components import GATES, address_of, duration_of, features_of, release_of
from dralab.cli._help import EverydayCommand
from dralab.cli._options import ANY_PATH, EXISTING, FILE, opt, options, options_of
from dralab.cli._serving import SERVICES, AuditFlags, files_of, listening_on, range_of, switches_of
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.kernel.clock import SECOND
from dralab.kernel.extras import require
from dralab.runtime.garbage import collect_rarely

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from dralab.apiserver.http.connections.asgi import AsgiApp
    from dralab.apiserver.server import ApiServer
    from dralab.apiserver.storage.etcd.address import EtcdAddress
    from dralab.cluster import Cluster, Component, Options
    from dralab.kernel.clock import Clock

P = ParamSpec("P")
MODES: Final = "Node,RBAC"
# This port is free in every list of well-known ports.
DEFAULT: Final = "127.0.0.1:55441"


def _uncollected(command: Callable[P, None]) -> Callable[P, None]:
    """Disable garbage collection at the start of a command; `_serve` enables it when it is ready.

    Nearly all that is made at the start stays: looking through it again and again takes a tenth of
    the time until then.
    """

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        gc.disable()
        try:
            command(*arguments, **options)
        finally:
            gc.enable()

    return run


@_uncollected
def serve(
    *,
    authentication: AuthenticationOptions,
    audit: AuditFlags,
    admission: AdmissionOptions,
    listen: str | None = opt(
        f"The address to listen on; port 0 picks a free port.  [default: {DEFAULT}, "
        f"or a free port if that is taken]",
        metavar="ADDR:PORT",
    ),
    kubeconfig: Path | None = opt(
        "Where to write the kubeconfig. [default: beside the data]", FILE
    ),
    data: str | None = opt(
        "Where to store the objects.  [default: dralab/cluster in your user data directory]",
        metavar="DIR|:memory:",
    ),
    durability: str = opt(
        "fsync: a write is on disk before it is acknowledged; relaxed: a write "
        "survives the end of this process, but a power failure may lose it.",
        ["fsync", "relaxed"],
        default="fsync",
    ),
    kubernetes_version: str = opt(
        "The release of Kubernetes to serve, 1.32 to 1.37.  [default: 1.36, and of 1.37 what a "
        "gate or --runtime-config asks for]",
        flags="--kubernetes-version --emulated-version",
        metavar="1.NN",
    ),
    feature_gates: str = GATES,
    tls: bool = opt(
        "HTTPS with a private CA, and a token; or HTTP without authentication, on loopback only, "
        "and not with --runtime process.",
        flags="--tls/--plain",
        default=True,
    ),
    bind_address: str | None = opt("The address to listen on, as in --listen.", metavar="ADDR"),
    secure_port: int | None = opt(
        "The port to listen on, as in --listen.", least=0, most=65535, metavar="PORT"
    ),
    tls_cert_file: Path | None = opt(
        "Serve HTTPS with this certificate (PEM, followed by its authorities) instead "
        "of a generated one.",
        EXISTING,
        metavar="FILE",
    ),
    tls_private_key_file: Path | None = opt(
        "The key of --tls-cert-file (PEM).", EXISTING, metavar="FILE"
    ),
    service_cluster_ip_range: str | None = opt(
        f"Where Services get their addresses (IPv4).  [default: {SERVICES}]", metavar="CIDR"
    ),
    runtime_config: str = opt(
        "API versions to switch on or off: GROUP/VERSION, GROUP/VERSION/RESOURCE, "
        "api/all, api/ga, api/beta, api/alpha.",
        metavar="API=true|false[,…]",
    ),
    accept_hosts: str = opt(
        "Host names of the server beside localhost. Its certificate has them; with "
        "--plain, requests for other names are refused.",
        metavar="NAME[,NAME]",
    ),
    authorization_mode: str | None = opt(
        "How to decide who may do what: AlwaysAllow, AlwaysDeny, Node, RBAC, in the "
        f"order given.  [default: {MODES}; with --plain AlwaysAllow]",
        metavar="MODE[,MODE]",
    ),
    token_file: Path | None = opt(
        "Require the token in this file instead of a generated one.", ANY_PATH
    ),
    event_ttl: str | None = opt(
        "How long an event is kept after its last write.  [default: 1h]", metavar="DURATION"
    ),
    node_networks: tuple[str, ...] = opt(
        "A network, beside loopback, where the server may connect to nodes for logs, "
        "exec and the like.",
        flags="--node-network",
        metavar="CIDR",
    ),
    store: "EtcdAddress | None" = None,
    service_accounts: bool = True,
    all_versions: bool = True,
    profiles: Sequence[str] = ("v1",),
    components: Sequence["Component"] = (),
    begin: "Callable[[Cluster], None]" = lambda _: None,
    snapshot: Path | None = None,
    clock: "Clock | None" = None,
    page: bool = False,
    pods_host: str = "",
    pods_device: str = "",
    pods_network: "IPv4Network | None" = None,
) -> None:
    """Serve until stopped; `begin` is called once with the running cluster, before `ready`.

    With `page`, it serves the page at /ui, too. At `pods_host` it listens beside its other address
    (on `pods_device`), and Services lead it into `pods_network`.
    """
    from dralab.api.snapshots.errors import SnapshotError
    from dralab.apiserver.access.authentication.errors import UnusableSetting
    from dralab.apiserver.http.connections.listening import AddressInUse, ServingError
    from dralab.apiserver.storage import StorageUnavailable
    from dralab.apiserver.verbs.upkeep.event_ttl import TTL
    from dralab.cluster import MEMORY, Cluster, Options
    from dralab.node.listening_ports import holder_of

    release = release_of(kubernetes_version)
    features = features_of(feature_gates, release, of_lab=all_versions)
    listen = listening_on(listen, bind_address, secure_port)
    serving = files_of(tls_cert_file, tls_private_key_file, tls=tls)
    host, port = address_of(listen or DEFAULT, DEFAULT)
    if not tls:
        _check_plain(host, token_file)
        authentication.check_plain()
    place = data or str(default_data())
    options = Options(
        host=host,
        port=port,
        data=place,
        durability=durability,  # type: ignore[arg-type]  # checked by click
        tls=tls,
        token=_token_in(token_file) if token_file else "",
        store=store,
        service_accounts=service_accounts,
        mount_tokens=True,
        all_versions=all_versions,
        profiles=profiles,
        version=release,
        features=features,
        node_networks=[_network(text) for text in node_networks],
        accept_hosts=[name.strip() for name in accept_hosts.split(",") if name.strip()],
        event_ttl=TTL if event_ttl is None else _ttl(event_ttl),
        authentication=authentication.flags(),
        admission=admission.settings(),
        outgoing=admission.outgoing(pods_network),
        authorization=_modes(authorization_mode, tls=tls),
        audit=audit.opener(),
        serving=serving,
        runtime_config=switches_of(runtime_config, release),
        service_network=range_of(service_cluster_ip_range),
        own_objects=True,
        pods_host=pods_host,
        pods_device=pods_device,
    )
    if kubeconfig is None and place != MEMORY:
        kubeconfig = Path(place) / "kubeconfig"
    _raise_limits()
    made = partial(
        Cluster,
        components=components,
        clock=clock,
        edge=_edge_with_page if page else None,
        snapshot=snapshot,
    )
    with refusing(StorageUnavailable, ServingError, UnusableSetting, SnapshotError):
        try:
            cluster = made(options)
            _run(_serve(cluster, kubeconfig, begin))
        except AddressInUse as error:
            error.holder = holder_of(error.port)
            if listen is not None:
                raise
            note(f"{error.fact}: serving on a free port instead")
            cluster = made(replace(options, port=0))
            _run(_serve(cluster, kubeconfig, begin))


EVERYDAY = (
    "listen", "kubeconfig", "data", "tls", "kubernetes-version", "store",
    "authorization-mode", "token-file",
)  # fmt: skip


@click.command(cls=EverydayCommand, everyday=EVERYDAY)
@options_of(serve)
@options
def apiserver(
    *,
    store: str = opt(
        "Store the objects in an etcd, which several servers may share, instead of in --data. "
        "Needs the extra `etcd`.",
        metavar="etcd://HOST:PORT[,HOST:PORT]",
    ),
    etcd_prefix: str = opt("Prefix of all keys.  [default: /registry]", metavar="PATH"),
    etcd_cafile: str = opt(
        "Use TLS: the authority that signed the certificates of etcd.", metavar="FILE"
    ),
    etcd_certfile: str = opt("Client certificate for etcd.", metavar="FILE"),
    etcd_keyfile: str = opt("Key of the client certificate.", metavar="FILE"),
    service_accounts: bool = opt(
        "Whether pods get a service account (`default` if they name none) and its token.",
        flags="--service-accounts/--no-service-accounts",
        default=True,
    ),
    api_versions: str = opt(
        "Serve all API versions, or only those that a real server serves by default.",
        ["all", "default"],
        default="all",
    ),
    **options: Any,
) -> None:
    """Serve only the Kubernetes API: no scheduler, no controllers, no nodes.

    Prints `ready: URL` when it accepts clients. Stops on Ctrl-C or SIGTERM.

    Example: `dralab apiserver --data :memory: --kubeconfig lab.kubeconfig`
    """
    if store and options["durability"] != "fsync":
        raise click.UsageError("--durability is for --data: with --store, etcd's own holds")
    given = {
        "prefix": etcd_prefix,
        "cafile": etcd_cafile,
        "certfile": etcd_certfile,
        "keyfile": etcd_keyfile,
    }
    serve(
        **options,
        store=etcd_of(store, {name: text for name, text in given.items() if text}),
        service_accounts=service_accounts,
        all_versions=api_versions == "all",
    )


def _edge_with_page(server: "ApiServer") -> "AsgiApp":
    from dralab.web.beside_api import AppWithPage

    return AppWithPage(server)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    from dralab.apiserver.http.connections.serving_thread import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serving)


async def _serve(
    cluster: "Cluster", kubeconfig: Path | None, begin: "Callable[[Cluster], None]"
) -> None:
    from dralab.cluster import MEMORY
    from dralab.node.orphans import OrphanGuard

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        cluster.server.application.pages.component.flags = _flags()
        if str(cluster.options.data) == MEMORY and cluster.options.tls:
            guard = OrphanGuard()
            stack.callback(guard.close)
            guard.cover([cluster.kept])  # its keys are nobody's any more if this process is killed
        path = kubeconfig or cluster.kubeconfig
        try:
            cluster.write_kubeconfig(path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UnusableInput(f"cannot write the kubeconfig {path}: {why}") from error
        await asyncio.to_thread(begin, cluster)
        _tell(cluster.options, path)
        collect_rarely()
        gc.enable()
        # A busy scheduler in this process yields to the server every millisecond instead of every
        # five: the median of a concurrent get falls from 5.3 to 1.3 ms.
        sys.setswitchinterval(0.001)
        # It has a line for each slice of an answer whose client is gone.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        echo(f"ready: {cluster.url}")
        await over.wait()
        note("stopping")


def _flags() -> dict[str, str]:
    """Return the options of this command, as `/flagz` shows them."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    return {
        max(option.opts, key=len).lstrip("-"): _spelled(context.params[option.name])
        for option in context.command.params
        if isinstance(option, click.Option) and option.name in context.params
    }


def _spelled(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tell(options: "Options", kubeconfig: Path) -> None:
    if not options.tls:
        note("plain HTTP without a token: every program on this machine has full access")
    note(f"try: kubectl --kubeconfig {kubeconfig} get namespaces")


def _check_plain(host: str, token_file: Path | None) -> None:
    """Refuse options that are only safe with TLS and a token. UsageError."""
    from dralab.apiserver.http.browser_guard import is_loopback

    if token_file:
        raise click.UsageError(
            "--token-file needs TLS (kubectl sends no token over plain HTTP): omit --plain"
        )
    if not is_loopback(host):
        raise click.UsageError(
            f"--plain listens on loopback only, not on {host}, where anyone would have full "
            f"access. Omit --plain"
        )


def _modes(text: str | None, *, tls: bool) -> tuple[str, ...]:
    """Return the modes of authorization. BadParameter; UsageError if no user can be told apart."""
    from dralab.apiserver.access.authorization.modes import ModeError, parse_modes

    if text is None:
        return parse_modes(MODES) if tls else ()
    with refusing(ModeError, option="--authorization-mode"):
        found = parse_modes(text)
    if not tls and found != ("AlwaysAllow",):
        raise click.UsageError(
            "--authorization-mode needs TLS: with --plain every client is the administrator. Omit "
            "--plain"
        )
    return found


def _token_in(file: Path) -> str:
    """Return the token in a file, which no list of processes shows. UnusableInput, BadParameter."""
    from dralab.files.reading import read

    try:
        found = read(file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise UnusableInput(f"cannot read the token file {file}: {why.lower()}") from error
    if not found or not found.isascii() or not found.isprintable() or " " in found:
        raise click.BadParameter(
            f"{file} must hold one line: a token of ASCII characters, without spaces",
            param_hint="--token-file",
        )
    return found


def _ttl(text: str) -> int:
    found = duration_of(text, "--event-ttl")
    if found < SECOND:
        raise click.BadParameter(f"{text!r} is shorter than a second", param_hint="--event-ttl")
    return found


def etcd_of(text: str, given: dict[str, str]) -> "EtcdAddress | None":
    """Return the etcd that the options name. UsageError, UnusableInput."""
    if not text:
        if given:
            raise click.UsageError(f"--etcd-{min(given)} needs --store etcd://HOST:PORT")
        return None
    require("etcd", "--store")
    from dralab.apiserver.storage.etcd.address import AddressError, EtcdAddress

    with refusing(AddressError, option="--store"):
        address = EtcdAddress.read(text, **given)
    if not address.secure and not all(map(_is_near, address.endpoints)):
        note(
            "the connection to etcd has no TLS: anyone who can read the network traffic sees "
            "every Secret"
        )
    return address


def _is_near(endpoint: str) -> bool:
    from dralab.apiserver.http.browser_guard import is_loopback

    return is_loopback(endpoint.rpartition(":")[0].strip("[]"))


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; a network is one such as 10.0.0.0/8", param_hint="--node-network"
        ) from error


def default_data() -> Path:
    """Return the default place of the objects, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "dralab" / "cluster"


def _raise_limits() -> None:
    """Raise the limit of open files to what the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def note(text: str) -> None:
    """Print a line for the user on stderr."""
    echo(text, err=True)
    sys.stderr.flush()

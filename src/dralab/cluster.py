"""A cluster: a server and the components that run with it.

>>> with Cluster() as cluster:
...     cluster.url.startswith("http://127.0.0.1:")
True
"""

import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

from dralab.api.kinds import Kinds
from dralab.api.releases import MIXED, parse
from dralab.api.resource.features import Features, default_of, of_labs
from dralab.apiserver.access.admission.services import NETWORK
from dralab.apiserver.access.authentication.settings import (
    AuthenticationFlags,
    AuthenticationSettings,
    settings_of,
)
from dralab.apiserver.access.users import user_named
from dralab.apiserver.http.browser_guard import is_loopback
from dralab.apiserver.http.proxying.nodes import LOOPBACK
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore, Store
from dralab.apiserver.storage.watching import WatchLimits
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
from dralab.apiserver.verbs.upkeep.event_ttl import TTL
from dralab.components import profiles
from dralab.files.owned import OwnedDirectory, sweep
from dralab.files.reading import read_own
from dralab.kernel.clock import SECOND, Clock, WallClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.cluster_clock import ClusterClock
from dralab.runtime.local import LocalClient
from dralab.runtime.new_kubeconfig import kubeconfig, write_privately
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.access.admission.selection import AdmissionSettings
    from dralab.apiserver.access.authentication.jwt import PrivateKey
    from dralab.apiserver.http.auditing import AuditSettings
    from dralab.apiserver.http.connections.asgi import AsgiApp
    from dralab.apiserver.http.connections.serving import HttpServer
    from dralab.apiserver.http.connections.serving_thread import ServingThread
    from dralab.apiserver.storage.etcd.address import EtcdAddress
    from dralab.apiserver.storage.etcd.store import EtcdStore
    from dralab.apiserver.storage.files import Durability
    from dralab.apiserver.verbs.upkeep.own_objects import OwnAddress

MEMORY: Final = ":memory:"
NO_FLAGS: Final = AuthenticationFlags()


class Component(Protocol):
    """Something that acts on a cluster while it runs: a scheduler, controllers, nodes."""

    def start(self, cluster: "Cluster") -> None:
        """Begin; the server answers already."""
        ...

    def stop(self) -> None:
        """End; the server still answers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a cluster is served and where it keeps its objects.

    `data` is a directory, or ":memory:". With `tls` the server asks for a token; CA, certificate
    and token are kept in the directory, or made again each time for a cluster in memory. `token`
    takes the place of the one that is made. Without `tls` it serves on the loopback alone.
    Without `service_accounts` pods get none; with `mount_tokens` theirs must exist and its token
    is mounted. Without `all_versions` only those API versions are served that a real server serves
    unasked.
    `profiles` say which meanings of the device API are served (`components.profiles`), `features`
    which feature gates are on; None stands for those of the `version`, a release of Kubernetes such
    as "1.34". Without one the server is of the release that is proven best, and takes what newer
    ones added where a gate or a switch asks for that.
    In `node_networks` (CIDR), beside the loopback, nodes of other processes may be asked.
    `accept_hosts` are names by which clients call the server, beside those of the loopback: where
    no token is asked for, requests for any other name are refused. Events are deleted `event_ttl`
    nanoseconds after their last write.
    `authentication` says who is known beside the administrator, `authorization` how is decided
    what they may do: modes of `authorization.modes`, all of them allowed everything without one.
    `audit` opens the audit log; `admission` says which admission plugins are off,
    `outgoing` where webhooks may be called.
    With `store` the objects are in that etcd, which other servers may share; `data` then has only
    the CA, certificate and token. Without `timers` no watch ends and no event is deleted because
    real time passes: the owner of a simulated clock calls `server.tick` instead.
    `serving` are the files of a certificate for HTTPS and its key, instead of one that is made.
    `runtime_config` switches API versions on and off (`apiserver.runtime_config`);
    `service_network` (CIDR) is where Services get their addresses. With `own_objects` the server
    tells about itself as a real one does: the Service `kubernetes`, its lease and the like.
    Where pods have a network it listens at `pods_host` too, for what comes from the interface
    `pods_device`: that is the address it publishes.
    """

    host: str = "127.0.0.1"
    port: int = 0
    data: str | Path = MEMORY
    durability: "Durability" = "fsync"
    tls: bool = False
    limits: WatchLimits | None = None
    token: str = ""
    service_accounts: bool = True
    mount_tokens: bool = False
    all_versions: bool = True
    profiles: Sequence[str] = profiles.DEFAULT
    version: str = ""
    features: Features | None = None
    node_networks: Sequence[str] = ()
    accept_hosts: Sequence[str] = ()
    event_ttl: int = TTL
    authentication: AuthenticationFlags = NO_FLAGS
    authorization: Sequence[str] = ()
    store: "EtcdAddress | None" = None
    audit: "Callable[[], AuditSettings] | None" = None
    admission: "AdmissionSettings | None" = None
    outgoing: OutgoingSettings | None = None
    timers: bool = True
    serving: tuple[Path, Path] | None = None
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    service_network: str = NETWORK
    own_objects: bool = False
    pods_host: str = ""
    pods_device: str = ""


class Cluster:
    """A cluster in this process.

    `with Cluster() as cluster:` serves it from its own thread, `async with` on the caller's
    loop. With `snapshot`, a file of `dralab snapshot`, it begins with the objects of that cluster.
    With a `ClusterClock` its time can be moved forward, with all that happens in it.
    Errors of the start (StorageUnavailable, ServingError, UnusableSetting, SnapshotError) are
    raised where it is entered.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        components: Sequence[Component] = (),
        clock: Clock | None = None,
        seed: int | None = None,
        edge: "Callable[[ApiServer], AsgiApp] | None" = None,
        snapshot: Path | None = None,
    ) -> None:
        self.options = options or Options()
        self.release = parse(self.options.version) if self.options.version else MIXED
        self.snapshot = snapshot
        # What answers HTTP for a server; a program may put something before it.
        self._new_edge = edge
        self.components = list(components)
        self.clock = clock or WallClock()
        self.seed = seed
        self._server: ApiServer | None = None
        self._http: HttpServer | None = None
        self._thread: ServingThread | None = None
        self._started: list[Component] = []
        self._place: OwnedDirectory | None = None
        self._token = ""
        self._ca: Path | None = None
        self._trusted: Path | None = None
        self._authentication = AuthenticationSettings()

    # --- what callers use -----------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where HTTP clients find the cluster."""
        if self._http is None:
            raise RuntimeError("the cluster is not running: use `with Cluster() as cluster:`")
        return self._http.url

    @property
    def server(self) -> ApiServer:
        """The server, for access to its store or its verbs."""
        if self._server is None:
            raise RuntimeError("the cluster is not running: use `with Cluster() as cluster:`")
        return self._server

    @property
    def client(self) -> LocalClient:
        """A client that needs no HTTP."""
        return LocalClient(self.server.resources, self.server.hub)

    def client_of(self, user: str) -> LocalClient:
        """Return a client that may do what a user may (`users.user_named`)."""
        resources = self.server.resources
        return LocalClient(resources, self.server.hub, user=user_named(user))

    @property
    def token(self) -> str:
        """The administrator's bearer token; empty if none is asked for."""
        return self._token

    @property
    def ca(self) -> str:
        """The CA of a server with `tls`, as PEM; empty without TLS."""
        return read_own(self._trusted).decode("ascii") if self._trusted is not None else ""

    @property
    def signing_files(self) -> tuple[Path, Path] | None:
        """The files of the cluster's own authority: certificate and key; None without `tls`."""
        return (self._ca, self._ca.with_suffix(".key")) if self._ca is not None else None

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file for the administrator; deleted with the cluster."""
        found = self._directory() / "kubeconfig"
        if not found.exists():
            self.write_kubeconfig(found)
        return found

    @property
    def kept(self) -> Path:
        """The directory of the store's files; deleted with the cluster if it is in memory."""
        data = self.options.data
        return self._directory() if str(data) == MEMORY else Path(data)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig file for the administrator, readable by its owner alone.

        ServingError for a token without `tls`: no client-go sends one over plain HTTP.
        """
        if self.token and self._ca is None:
            from dralab.apiserver.http.connections.listening import ServingError

            raise ServingError(
                "a kubeconfig with a token needs TLS: kubectl sends no token without it"
            )
        text = kubeconfig(self.url, token=self.token, ca=self.ca)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_privately(path, text)

    def when_idle(self, call: Callable[[], object], *, events: bool = False) -> None:
        """Call a function in the server's thread once it has answered everything.

        Everything but events, which it leaves for last; with `events`, those too. For a cluster
        that serves from its own thread; any thread may ask.
        """
        self._in_thread().when_idle(self._edge, call, events=events)

    @property
    def waits_on(self) -> int | None:
        """The descriptor on which the thread waits that serves (`ServingThread.waits_on`)."""
        return self._in_thread().waits_on

    def compact(self) -> None:
        """Forget the history: watches and pages from an earlier revision get 410."""
        store = self.server.store
        with store.lock:
            store.compact(store.revision)

    def reset(self) -> None:
        """Exchange the store for an empty one in memory; watches end, components start again.

        A `ClusterClock` begins again at the time at which it starts.
        """
        self._stop_components()
        if isinstance(self.clock, ClusterClock):
            self.clock.reset()
        old, new = self.server, self._new_server(MemoryStore())
        if self._http is not None:
            self._edge.served = new
        self._server = new
        old.close()
        self._start_components()

    # --- running --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        from dralab.apiserver.http.connections.serving_thread import ServingThread

        self._prepare()
        self._thread = ServingThread(self._serving(), fast=self.options.timers)
        try:
            self._thread.start()
        except BaseException:
            self._close()
            raise
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_components()
        if self._thread is not None:
            self._thread.stop()
        self._close()

    async def __aenter__(self) -> Self:
        self._prepare()
        try:
            await self._serving().start()
        except BaseException:
            self._close()
            raise
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_components()
        await self._serving().stop()
        self._close()

    def _prepare(self) -> None:
        from dralab.apiserver.http.connections.asgi import AsgiApp
        from dralab.apiserver.http.connections.asgi_base import AsgiLimits
        from dralab.apiserver.http.connections.listening import ServingError, address, listen
        from dralab.apiserver.http.connections.serving import HttpServer

        options = self.options
        sweep()
        if not (options.tls or is_loopback(options.host)):
            raise ServingError(
                f"without TLS and a token, the server listens only on the loopback, not on "
                f"{options.host}"
            )
        if options.store is not None:
            store: Store = shared_store(options.store, options.event_ttl)
        else:
            store = open_store(options.data, options.durability)
        others: list[socket.socket] = []
        with ExitStack() as undo:  # where the start fails
            undo.callback(self._close)
            undo.callback(store.close)
            listener = listen(options.host, options.port)
            undo.callback(listener.close)
            host, port = address(listener)
            self._address = f"{host}:{port}"
            if options.pods_host:
                self._address = f"{options.pods_host}:{port}"
                if not ipaddress.ip_address(host).is_unspecified:
                    others.append(listen(options.pods_host, port, options.pods_device))
                    undo.callback(others[0].close)
            certificate, self._token = None, options.token
            if options.tls:
                from dralab.apiserver.http.connections import tls

                place = self.kept / "tls"
                certificate = tls.certificate(
                    place,
                    WallClock().now(),
                    [options.host, *options.accept_hosts, *self._pods_names()],
                    clients=self.clock.now(),
                )
                if options.own_objects:
                    self.options = options = self._with_front_proxy(place)
                self._token = options.token or tls.token(place)
                self._ca = self._trusted = certificate.ca
                if options.serving is not None:
                    certificate = tls.operators_certificate(*options.serving)
                    self._trusted = certificate.ca
            self._authentication = settings_of(
                options.authentication,
                self.clock,
                token=self._token,
                own_ca=self._ca,
                own_key=self._signing_key,
            )
            self._server = self._new_server(store)
            if self.snapshot is not None:
                self._load(self.snapshot)
            self._authentication.start()
            limits = AsgiLimits(timers=options.timers)
            new_edge = self._new_edge or partial(AsgiApp, limits=limits)
            self._edge = new_edge(self._server)
            self._http = HttpServer(
                self._edge,
                listener,
                certificate,
                client_authorities=self._authentication.client_authorities,
                others=others,
            )
            undo.pop_all()

    def _with_front_proxy(self, place: Path) -> Options:
        from dralab.apiserver.http.connections import tls
        from dralab.apiserver.own_address import with_front_proxy

        flags, outgoing = with_front_proxy(
            self.options.authentication,
            self.options.outgoing,
            lambda: tls.front_proxy(place, WallClock().now(), clients=self.clock.now()),
        )
        return replace(self.options, authentication=flags, outgoing=outgoing)

    def _new_server(self, store: Store) -> ApiServer:
        randomness = Randomness.from_system() if self.seed is None else Randomness(self.seed)
        self._held_objects = bool(store.resources())
        server = ApiServer(
            store,
            clock=self.clock,
            randomness=randomness,
            authentication=self._authentication,
            address=self._address,
            limits=self.options.limits,
            kinds=self._kinds(),
            service_accounts=self.options.service_accounts,
            mount_tokens=self.options.mount_tokens,
            features=self._features(),
            networks=[*LOOPBACK, *map(ipaddress.ip_network, self.options.node_networks)],
            accept_hosts=self.options.accept_hosts,
            event_ttl=self.options.event_ttl,
            authorization=self.options.authorization,
            admission=self.options.admission,
            outgoing=self.options.outgoing,
            audit=None if self.options.audit is None else self.options.audit(),
            service_network=self.options.service_network,
        )
        self._note_release(server)
        if self.options.all_versions:
            profiles.install(server.resources, self.options.profiles)
        if self.options.own_objects:
            server.publish(self._own_address())
        return server

    def _pods_names(self) -> list[str]:
        """Return the addresses at which pods with a network reach the server."""
        if not self.options.pods_host:
            return []
        service = ipaddress.ip_network(self.options.service_network)[1]
        return [self.options.pods_host, str(service)]

    @property
    def pods_url(self) -> str:
        """Where programs in pods find the cluster."""
        return f"https://{self._address}" if self.options.pods_host else self.url

    def _kinds(self) -> Kinds:
        options = self.options
        if options.runtime_config:
            from dralab.apiserver.runtime_config import kinds_of

            return kinds_of(
                options.runtime_config, all_versions=options.all_versions, release=self.release
            )
        return Kinds.standard(also=None if options.all_versions else (), release=self.release)

    def _note_release(self, server: ApiServer) -> None:
        """Record the release that writes to the store; read objects of others in its form."""
        from dralab.apiserver.storage.writers import Notes, note_writers, writers_of
        from dralab.apiserver.verbs.upkeep.migration import read_anew

        place: Path | Notes
        if self.options.store is not None:
            place = cast("EtcdStore", server.store)
        elif str(self.options.data) == MEMORY:
            return
        else:
            place = Path(self.options.data)
        before = writers_of(place) if self._held_objects else frozenset()
        if before - {self.release}:
            read_anew(server.resources)
        if before | {self.release} != {MIXED}:
            note_writers(place, before | {self.release})

    def _features(self) -> Features:
        """Return the gates that are on: those of a lab where all API versions are served."""
        if self.options.features is not None:
            return self.options.features
        found = default_of(self.release)
        return found | of_labs(self.release) if self.options.all_versions else found

    def _own_address(self) -> "OwnAddress":
        from dralab.apiserver.own_address import own_address

        flags = self.options.authentication
        client_cas = [file for file in (self._ca, flags.client_ca_file) if file is not None]
        return own_address(self._address, self.options.service_network, flags, client_cas)

    def _load(self, snapshot: Path) -> None:
        from dralab.api.snapshots.errors import SnapshotError
        from dralab.api.snapshots.files import read_file
        from dralab.components import example, snapshots

        objects = read_file(snapshot)
        if not example.is_empty(self.client):
            raise SnapshotError(
                f"{snapshot} needs an empty cluster, and {self.options.data} has one with nodes, "
                "pods or devices: choose another directory"
            )
        try:
            snapshots.load(self, objects)
        except ValueError as error:
            raise SnapshotError(f"{snapshot}: {error}") from error

    def _signing_key(self) -> "PrivateKey":
        from dralab.apiserver.http.connections import tls

        return tls.signing_key(self.kept / "tls")

    def _serving(self) -> "HttpServer":
        if self._http is None:
            raise RuntimeError("the cluster is not running")
        return self._http

    def _in_thread(self) -> "ServingThread":
        self._serving()
        if self._thread is None:
            raise RuntimeError("the cluster does not run in its own thread")
        return self._thread

    def _begin(self) -> None:
        if isinstance(self.clock, ClusterClock):
            self.clock.afterwards(self._tick)
        try:
            self._start_components()
        except BaseException:
            self.__exit__()
            raise

    def _start_components(self) -> None:
        for component in self.components:
            component.start(self)
            self._started.append(component)

    def _tick(self) -> None:
        self.server.tick()

    def _stop_components(self) -> None:
        while self._started:
            self._started.pop().stop()

    def _close(self) -> None:
        self._authentication.stop()
        if self._server is not None:
            self._server.close()
        self._server = self._http = self._thread = None
        if self._place is not None:
            self._place.close()
            self._place = None

    def _directory(self) -> Path:
        """Return a directory that lives as long as the cluster runs."""
        if self._place is None:
            self._place = OwnedDirectory.new()
        return self._place.path


def open_store(data: str | Path, durability: "Durability" = "fsync") -> Store:
    """Return the store in a directory, or one in memory. StorageUnavailable."""
    if str(data) == MEMORY:
        return MemoryStore()
    from dralab.apiserver.storage.sqlite import SqliteStore

    return SqliteStore(Path(data), durability=durability)


def shared_store(address: "EtcdAddress", event_ttl: int = TTL) -> "EtcdStore":
    """Return the store in an etcd. StorageUnavailable."""
    from dralab.apiserver.storage.etcd import EtcdStore

    return EtcdStore(address, event_ttl=-(-event_ttl // SECOND))

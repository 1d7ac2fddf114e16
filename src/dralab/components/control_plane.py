"""Scheduler and controllers on one engine, in the server's process or another.

A `Cluster` takes a `ControlPlane` as one of its components; `dralab scheduler` uses the same pieces
against any server. In simulated time hand `assemble` a manager on a `SimulatedEngine`.
"""

import socket
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dralab.api.resource.features import off_in
from dralab.components import older_parts, roles
from dralab.components.roles import RolesHost
from dralab.kernel.clock import Clock
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Client
from dralab.runtime.engine import Engine
from dralab.runtime.leader_election import Leadership
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS, is_served

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from dralab.api.kinds import Kinds
    from dralab.scheduler.scheduler import Scheduler

SCHEDULER: Final = "scheduler"
# kube-scheduler's: it and dralab's leave the cluster to each other.
LEASE: Final = "kube-scheduler"
IDENTITY: Final = "dralab-up"
# The users of the shared caches and the scheduler; controllers have accounts of their own.
READER: Final = "system:kube-controller-manager"
SCHEDULER_USER: Final = "system:kube-scheduler"
CONTROLLERS: Final = "controllers"
NODES: Final = "nodes"
PARTS: Final = (SCHEDULER, CONTROLLERS, NODES)
STORED_ONLY: Final = frozenset(
    {
        "autoscaling/horizontalpodautoscalers",
        "certificates.k8s.io/clustertrustbundles",
        "certificates.k8s.io/podcertificaterequests",
        "coordination.k8s.io/leasecandidates",
        "internal.apiserver.k8s.io/storageversions",
        "networking.k8s.io/ingresses",
        "networking.k8s.io/ipaddresses",
        "networking.k8s.io/networkpolicies",
        "networking.k8s.io/servicecidrs",
        "storage.k8s.io/csistoragecapacities",
        "storage.k8s.io/volumeattachments",
        "storagemigration.k8s.io/storageversionmigrations",
    }
)
"""Collections on whose objects a real cluster acts, and no part of dralab."""
OPTIONAL: Final = {
    (collection, name): f"`dralab up --autoscaler {autoscaler}`"
    for collection, name, autoscaler in (
        ("karpenter.sh/nodepools", "", "karpenter"),
        ("karpenter.sh/nodeclaims", "", "karpenter"),
        ("karpenter.kwok.sh/kwoknodeclasses", "", "karpenter"),
        ("configmaps", "kwok-provider-config", "cluster-autoscaler"),
        ("configmaps", "kwok-provider-templates", "cluster-autoscaler"),
    )
}
"""Collections, or objects of a name, on which a part acts that has to be asked for, and how."""


class ControlPlaneHost(RolesHost, Protocol):
    """What components need from a cluster."""

    def client_of(self, user: str) -> Client:
        """Return a client that may do what a user may."""
        ...

    @property
    def ca(self) -> str:
        """Its certificate authority as PEM; empty if it has none."""
        ...

    @property
    def signing_files(self) -> tuple[Path, Path] | None:
        """The files of that authority's certificate and private key; None if it has none."""
        ...

    clock: Clock
    seed: int | None


class ControlPlane:
    """The components of a cluster that need no node; `without` names those to omit.

    `alone` says that no other scheduler ever runs there: it elects no leader. Services of type
    LoadBalancer get addresses of `load_balancers`; without it they wait for a controller that gives
    them some.
    """

    def __init__(
        self,
        *,
        without: Collection[str] = (),
        alone: bool = False,
        load_balancers: "IPv4Network | None" = None,
    ) -> None:
        unknown = sorted(set(without) - set(PARTS))
        if unknown:
            raise ValueError(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
        self.without = frozenset(without)
        self.alone = alone
        self.load_balancers = load_balancers
        self.engine: LiveEngine | None = None
        self.manager: Manager | None = None
        self.scheduler: Scheduler | None = None
        self.leadership: Leadership | None = None

    def start(self, cluster: ControlPlaneHost) -> None:
        """Start, with a running server."""
        randomness = Randomness.from_system() if cluster.seed is None else Randomness(cluster.seed)
        engine = self.engine = LiveEngine(name="dralab-components", clock=cluster.clock)
        reader = SCHEDULER_USER if CONTROLLERS in self.without else READER
        manager = self.manager = Manager(
            engine, cluster.client_of(reader), randomness, client_of=cluster.client_of
        )
        kinds = cluster.server.resources.kinds
        rules = cluster.server.resources.context.rules
        rules.stored_only, rules.optional = STORED_ONLY, OPTIONAL
        roles.install_for(cluster, older_parts.served(kinds))

        def begin() -> None:
            # In the engine's thread: the server is ready before these modules are read.
            self.scheduler = assemble(
                manager,
                without=self.without,
                kinds=kinds,
                alone=self.alone,
                ca=cluster.ca,
                signing_files=cluster.signing_files,
                load_balancers=self.load_balancers,
                off=off_in(kinds.release, cluster.server.features),
            )
            manager.start()
            if self.scheduler is not None and not self.alone:
                # Always the same name: a cluster that starts again holds its own lease still.
                client = cluster.client_of(SCHEDULER_USER)
                self.leadership = election(engine, client, self.scheduler, IDENTITY)
                self.leadership.start()

        engine.soon(begin)
        engine.start()

    def stop(self) -> None:
        """Stop; writes that have begun are finished."""
        if self.manager is not None:
            self.manager.stop()
        if self.engine is not None:
            self.engine.stop()
        if self.leadership is not None:
            self.leadership.stop()
        self.engine = self.manager = self.scheduler = self.leadership = None


def election(engine: Engine, client: Client, scheduler: "Scheduler", identity: str) -> Leadership:
    """Start the leader election of a scheduler, and return it.

    kube-scheduler's own lease where the scheduler has the default's name, else one of that name.
    """
    name = LEASE if scheduler.name == "default-scheduler" else scheduler.name
    scheduler.rest()

    def begin() -> None:
        scheduler.lead(found.may_act)

    found = Leadership(engine, client, name, identity, begin, scheduler.rest)
    return found


def new_identity() -> str:
    """Return a name that no other process has."""
    return f"{socket.gethostname()}_{Randomness.from_system().uuid('identity')}"


def assemble(
    manager: Manager,
    *,
    without: Collection[str] = (),
    kinds: "Kinds | None" = None,
    brief: bool = False,
    alone: bool = False,
    ca: str = "",
    signing_files: tuple[Path, Path] | None = None,
    load_balancers: "IPv4Network | None" = None,
    off: frozenset[str] = frozenset(),
) -> "Scheduler | None":
    """Put scheduler and controllers on a manager; return the scheduler, if it is one of them.

    `kinds` are those that the server has, for the controllers that look after all of them, and for
    the parts of older generations; `brief` has the scheduler say no more than kube-scheduler of
    pods that fit nowhere; `alone` says that no other one writes to the server; `ca` is what pods
    are told of the server's certificate authority; `signing_files` are the certificate and the
    private key of the one that signs requests for certificates; `load_balancers` is where Services
    of that type get their addresses; `off` are the feature gates that are off. On a server without
    today's device API run the controllers that need nothing of it, and no scheduler.
    """
    from dralab.allocation.selectors import CelSelectorCompiler
    from dralab.controllers import registry
    from dralab.scheduler.scheduler import Scheduler, briefly

    older = kinds is not None and not is_served(CLAIMS, kinds)
    if CONTROLLERS not in without:
        left_out = registry.OF_TODAYS_DEVICES if older else ()
        registry.assemble(
            manager, without=left_out, kinds=kinds, ca=ca, signing_files=signing_files
        )
        for parts in older_parts.served(kinds):
            parts.control(manager)
        if load_balancers is not None:
            from dralab.controllers.load_balancers import ACCOUNT, LoadBalancers

            LoadBalancers(manager.acting_as(registry.account_of(ACCOUNT)), load_balancers)
    if SCHEDULER in without or older:
        return None
    manager = manager.acting_as(SCHEDULER_USER)
    scheduler = Scheduler(
        manager, CelSelectorCompiler(), explain=briefly if brief else None, alone=alone, off=off
    )
    for parts in older_parts.served(kinds):
        parts.scheduling(manager, scheduler)
    return scheduler

"""What each older generation of the device API adds to a cluster that serves it.

The one place where the assembly knows them: their controllers, their part of the scheduler, and
what dralab's users may do for them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final

from dralab.api.kinds import Kinds
from dralab.components.roles import DEVICES, EVENTS, READ, Rule
from dralab.controllers import registry
from dralab.runtime.client import Client, Resource, serves
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    CLAIMS,
    DEVICE_POOLS,
    EVOLUTION_POOLS,
    SCHEDULING_CONTEXTS,
    is_served,
)
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.node.kubelet import Kubelet
    from dralab.scheduler.scheduler import Scheduler

K8SRM: Final = "devmgmtproto.k8s.io"


def _nothing(_manager: Manager, _scheduler: "Scheduler") -> None:
    """Add nothing to the scheduler: `dralab allocate --apply` places the pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderDriver:
    """An older generation's driver that replaces one of today's built-in drivers, with its objects.

    `start` begins its control plane; what it returns has the driver serve a node.
    """

    instead_of: str
    objects: Sequence[JsonDict]
    start: Callable[[Manager], Callable[["Kubelet"], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderParts:
    """What runs where a server has the collection `sign`.

    `controllers` by their names: each takes a manager that acts as its account. `accounts` and
    `scheduler_rules` are rules for the roles of service accounts and of the scheduler. `driver` is
    one of its own for nodes.
    """

    profile: str
    sign: Resource
    controllers: Mapping[str, Callable[[Manager], object]]
    scheduling: Callable[[Manager, "Scheduler"], object] = _nothing
    accounts: Mapping[str, Sequence[Rule]] = field(default_factory=dict)
    scheduler_rules: Sequence[Rule] = ()
    driver: OlderDriver | None = None

    def control(self, manager: Manager, *, without: Sequence[str] = ()) -> None:
        """Put the controllers on a manager."""
        for name, make in self.controllers.items():
            if name not in without:
                make(manager.acting_as(registry.account_of(name)))


def served(kinds: Kinds | None) -> list[OlderParts]:
    """Return the parts for a server with these kinds; none if the kinds are unknown."""
    return [parts for parts in PARTS if is_served(parts.sign, kinds)]


def profiles_of(client: Client) -> list[str]:
    """Return the profiles that a server serves, found by asking. ApiError."""
    today = ["v1"] if serves(client, CLAIMS) else []
    return today + [parts.profile for parts in PARTS if serves(client, parts.sign)]


# --- k8srm ------------------------------------------------------------------------------------


def _device_claims(manager: Manager) -> object:
    from dralab.controllers.device_claims import DeviceClaims

    return DeviceClaims(manager)


_K8SRM: Final = OlderParts(
    profile="k8srm",
    sign=DEVICE_POOLS,
    controllers={"device-claim-controller": _device_claims},
    accounts={
        "device-claim-controller": [
            (("get",), "", ("pods",)),
            (("get",), K8SRM, ("deviceclaims", "deviceclasses", "devicepools")),
            (
                ("get", "update"),
                K8SRM,
                ("deviceclaims/status", "deviceclasses/status", "devicepools/status"),
            ),
        ]
    },
    # No right to configs: `dralab allocate --apply` copies those that its own user may read.
    scheduler_rules=[
        (READ, K8SRM, ("*",)),
        (("create",), K8SRM, ("deviceclaims",)),
        (("update",), K8SRM, ("deviceclaims/status",)),
    ],
)


# --- dra-evolution ----------------------------------------------------------------------------


def _evolution_claims(manager: Manager) -> object:
    from dralab.controllers.evolution_claims import EvolutionClaims

    return EvolutionClaims(manager)


def _evolution_pods(manager: Manager) -> object:
    from dralab.controllers.evolution_pods import EvolutionPods

    return EvolutionPods(manager)


_EVOLUTION: Final = OlderParts(
    profile="evolution",
    sign=EVOLUTION_POOLS,
    controllers={
        "evolution-claim-controller": _evolution_claims,
        "evolution-pod-controller": _evolution_pods,
    },
    accounts={
        "evolution-claim-controller": [
            (("get",), DEVICES, ("pods", "resourceclaims")),
            (("get", "update"), DEVICES, ("resourceclaims", "resourceclaims/status")),
            (("update",), DEVICES, ("resourceclaims/binding",)),
        ],
        "evolution-pod-controller": [
            (("get", "update"), DEVICES, ("pods", "pods/status")),
            (("delete",), DEVICES, ("pods",)),
            (("create", "delete"), "", ("pods",)),
        ],
    },
    scheduler_rules=[
        (READ, DEVICES, ("deviceclasses", "resourceclaims", "resourceclaimtemplates")),
        (READ, DEVICES, ("pods", "quotas", "resourcepools")),
        (("create",), DEVICES, ("resourceclaims",)),
        (("patch",), DEVICES, ("pods",)),
    ],
)


# --- classic DRA ------------------------------------------------------------------------------


def _classic_claims(manager: Manager) -> object:
    from dralab.controllers.classic_claims import ClassicClaims

    return ClassicClaims(manager)


def _classic_scheduling(manager: Manager, scheduler: "Scheduler") -> object:
    from dralab.scheduler.classic import ClassicScheduling

    return ClassicScheduling(manager, scheduler)


def _classic_driver(manager: Manager) -> Callable[["Kubelet"], None]:
    from dralab.drivers.classic.controller import ClassicController
    from dralab.drivers.classic.plugin import AllocationStates, ClassicPlugin

    ClassicController(manager)
    states = AllocationStates(manager)

    def serve(kubelet: "Kubelet") -> None:
        kubelets = kubelet.kubelets
        client = kubelets.manager.client  # the driver's: a node may not read all claims
        plugin = ClassicPlugin(kubelet.name, client, kubelet.directory)
        plugin.on_resources = partial(
            kubelets.named_slices.set_devices, kubelet.name, plugin.driver
        )
        plugin.start()
        kubelet.register(plugin)
        states.plugins[kubelet.name] = plugin

    return serve


_CLASSIC: Final = OlderParts(
    profile="classic",
    driver=OlderDriver(
        instead_of="fake",
        objects=[
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fake-system"}},
            {
                "apiVersion": "resource.k8s.io/v1alpha2",
                "kind": "ResourceClass",
                "metadata": {"name": "fake.3-shake.com"},
                "driverName": "fake.resource.3-shake.com",
            },
        ],
        start=_classic_driver,
    ),
    sign=SCHEDULING_CONTEXTS,
    # The controller of today's claims has the same name and account.
    controllers={registry.CLAIMS: _classic_claims},
    scheduling=_classic_scheduling,
    accounts={
        "resource-claim-controller": [(("get",), DEVICES, ("resourceclaimtemplates",))],
        # The driver with its controller.
        "dralab-nodes": [
            (("create",), "", ("namespaces",)),
            (
                READ,
                DEVICES,
                (
                    "podschedulingcontexts",
                    "resourceclaimparameters",
                    "resourceclaims",
                    "resourceclasses",
                ),
            ),
            (("create",), DEVICES, ("resourceclasses",)),
            (
                ("update",),
                DEVICES,
                ("podschedulingcontexts/status", "resourceclaims", "resourceclaims/status"),
            ),
            *EVENTS,
            (READ, "fake.resource.3-shake.com", ("deviceclassparameters", "fakeclaimparameters")),
            (
                (*READ, "create", "delete", "update"),
                "nas.fake.resource.3-shake.com",
                ("nodeallocationstates", "nodeallocationstates/status"),
            ),
        ],
    },
    scheduler_rules=[
        ((*READ, "create", "delete", "update"), DEVICES, ("podschedulingcontexts",)),
        (
            READ,
            DEVICES,
            ("resourceclaimparameters", "resourceclasses", "resourceclassparameters"),
        ),
    ],
)
PARTS: Final = (_K8SRM, _EVOLUTION, _CLASSIC)


def drivers_of(profiles: Collection[str], drivers: Collection[object]) -> list[OlderDriver]:
    """Return the drivers of older generations that run in place of built-in ones."""
    found = [parts.driver for parts in PARTS if parts.profile in profiles]
    return [each for each in found if each is not None and each.instead_of in drivers]

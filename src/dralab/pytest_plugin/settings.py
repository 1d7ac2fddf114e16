"""The settings of a test's cluster: the options `--dralab-…` and the marker `dralab`.

The marker's arguments have the names of the options; for its test they take their place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import pytest

if TYPE_CHECKING:
    from dralab.drivers.driver import Driver

MARKER: Final = (
    "dralab(nodes, drivers, fleet, runtime, images, without, clock, start, tls, authorization, "
    "load_balancers, system_pods, services, seed, server, version): what the test wants of its "
    "cluster, in place of the options --dralab-..."
)
RUNTIMES: Final = ("simulated", "process")
CLOCKS: Final = ("running", "stopped")
SERVERS: Final = ("session", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings of a test's cluster.

    `drivers` are names of built-in ones or classes of the SDK; `images` as `dralab up --image-map`
    takes them, `services` as `--service`; `clock` is "running", or "stopped" for one that moves by
    `advance` alone; it starts at `start` (RFC 3339), by default now. `server` is "session" if tests
    that want the same may share a server, each with an empty store, or "test" for one of the
    test's own. `version` is a release of Kubernetes.
    """

    nodes: int = 1
    drivers: "tuple[str | type[Driver], ...]" = ()
    fleet: str = ""
    runtime: str = "simulated"
    images: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clock: str = "running"
    start: str = ""
    tls: bool = False
    authorization: tuple[str, ...] = ()
    load_balancers: str = ""
    system_pods: bool = False
    services: tuple[str, ...] = ()
    seed: int | None = None
    server: str = "session"
    version: str = ""
    components: bool = True

    def without_components(self) -> Self:
        """Return the same settings for the API alone, without those of components."""
        usual = type(self)()
        return replace(
            usual,
            clock=self.clock,
            start=self.start,
            tls=self.tls,
            authorization=self.authorization,
            services=self.services,
            seed=self.seed,
            server=self.server,
            version=self.version,
            components=False,
        )


def add_options(parser: pytest.Parser) -> None:
    """Add the options of the fixtures."""
    group = parser.getgroup("dralab", "Kubernetes clusters of dralab")
    add = group.addoption
    add("--dralab-nodes", type=int, metavar="N", help="nodes of running_cluster [1]")
    add(
        "--dralab-driver",
        action="append",
        choices=["fake", "gpu", "nic", "cpu"],
        help="run this DRA driver on every node; may be repeated",
    )
    add("--dralab-fleet", metavar="SHAPE", help="run the nodes of a shape of `dralab generate`")
    add(
        "--dralab-runtime",
        choices=RUNTIMES,
        help="simulate containers, or run their commands as processes, with your rights",
    )
    add(
        "--dralab-image",
        action="append",
        metavar="IMAGE=COMMAND",
        help="what an image runs under --dralab-runtime process; may be repeated",
    )
    add(
        "--dralab-without",
        action="append",
        choices=["scheduler", "controllers", "nodes"],
        help="leave out a part of running_cluster; may be repeated",
    )
    add("--dralab-clock", choices=CLOCKS, help="whether time passes by itself [running]")
    add("--dralab-start", metavar="TIME", help="when clusters begin, as 2026-01-01T00:00:00Z [now]")
    add("--dralab-tls", action="store_true", default=None, help="serve HTTPS, and ask for a token")
    add(
        "--dralab-authorization",
        action="append",
        metavar="MODE",
        help="who may do what: Node, RBAC, ...; may be repeated [all may do everything]",
    )
    add(
        "--dralab-load-balancers",
        metavar="CIDR",
        help="give Services of type LoadBalancer addresses of this network",
    )
    add(
        "--dralab-system-pods",
        action="store_true",
        default=None,
        help="have simulated pods in kube-system as after kubeadm",
    )
    add(
        "--dralab-service",
        action="append",
        metavar="NS/NAME[:PORT]=HOST:PORT",
        help="where a Service that webhooks name is reached; may be repeated",
    )
    add("--dralab-seed", type=int, metavar="N", help="draw names and uids from this seed")
    add(
        "--dralab-server",
        choices=SERVERS,
        help="share a server in a session, or start one for each test [session]",
    )
    add("--dralab-version", metavar="1.NN", help="the release of Kubernetes to be [1.36]")


# The options that have another name than their setting.
OPTIONS: Final = {"drivers": "driver", "images": "image", "services": "service"}


def settings_of(request: pytest.FixtureRequest) -> ClusterSettings:
    """Return a test's settings. The test fails if its marker is invalid."""
    found: dict[str, Any] = {}
    for name in _names():
        value = request.config.getoption(f"dralab_{OPTIONS.get(name, name)}")
        if value is not None:
            found[name] = tuple(value) if isinstance(value, list) else value
    for marker in reversed(list(request.node.iter_markers("dralab"))):
        if marker.args:
            _refuse(request, f"takes named arguments alone, not {marker.args[0]!r}")
        found |= _checked(request, marker.kwargs)
    settings = ClusterSettings(**found)
    # Programs of strangers must not run here: the runtime wants a token.
    return replace(settings, tls=True) if settings.runtime == "process" else settings


def _names() -> list[str]:
    return [each.name for each in fields(ClusterSettings) if each.name != "components"]


def _checked(request: pytest.FixtureRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        if name not in _names():
            _refuse(request, f"knows no {name!r}; known: {', '.join(_names())}")
        known = {"runtime": RUNTIMES, "clock": CLOCKS, "server": SERVERS}.get(name)
        if known is not None and value not in known:
            _refuse(request, f"{name} is one of {', '.join(known)}, not {value!r}")
        found[name] = tuple(value) if isinstance(value, list) else value
    return found


def _refuse(request: pytest.FixtureRequest, why: str) -> NoReturn:
    pytest.fail(f"{request.node.nodeid}: the marker dralab {why}", pytrace=False)

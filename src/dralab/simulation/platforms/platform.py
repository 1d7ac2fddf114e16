"""Hosts as Batsim shows them to a scheduler, and the zones whose links join them."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NewType

from dralab.scenarios.errors import InputError

Role = Literal["master", "compute_node", "storage"]
MOST_HOSTS: Final = 1 << 20
DIGITS: Final = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of one pstate: computing at zero and full load, and idle."""

    idle: float
    least: float
    full: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host. `speeds` are flop/s per pstate; `power` is empty if the platform has none."""

    name: str
    speeds: tuple[float, ...]
    zone: str
    role: Role = "compute_node"
    cores: int = 1
    power: tuple[Power, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    zone_properties: Mapping[str, str] = field(default_factory=dict)
    line: int = 0

    @property
    def speed(self) -> float:
        """Flop/s in the first pstate."""
        return self.speeds[0]


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes/s and seconds; `shared` False (FATPIPE) lets every flow have all of it."""

    bandwidth: float
    latency: float
    shared: bool = True


# A directed use of a link; a cluster's private links have two ways, other links one.
Way = NewType("Way", str)


@dataclass(slots=True, kw_only=True)
class Zone:
    """One zone: hosts or further zones, and the routes between them.

    `routes` and `zone_routes` go from (source, target) to the ways; `private` gives a host of a
    cluster its (up, down) ways; `backbone` is crossed by all traffic between them. In a Vivaldi
    zone there are no links: `coordinates` (x, y and height, in milliseconds) give the latencies.
    """

    id: str
    routing: str
    parent: str | None
    routes: dict[tuple[str, str], tuple[Way, ...]] = field(default_factory=dict)
    gateways: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    private: dict[str, tuple[Way, Way]] = field(default_factory=dict)
    backbone: Way | None = None
    coordinates: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    routers: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """All hosts; those a scheduler sees have the index in `compute` as resource id."""

    name: str
    master: str
    compute: tuple[Host, ...]
    storage: tuple[Host, ...] = ()
    hosts: Mapping[str, Host]
    zones: Mapping[str, Zone]
    ways: Mapping[Way, Link]

    @property
    def width(self) -> int:
        """The number of machines that run jobs."""
        return len(self.compute)


def in_order(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Return hosts sorted by name, numbers by their value: `a2` comes before `a10`."""
    return tuple(sorted(hosts, key=lambda host: (_natural(host.name), host.name)))


def plain(count: int) -> Platform:
    """Return `count` equal hosts without power data, all on one fast switch.

    >>> [host.name for host in plain(2).compute]
    ['host0', 'host1']
    """
    if count > MOST_HOSTS:
        raise InputError(f"{count} hosts", f"at most {MOST_HOSTS} hosts can be simulated")
    zone = Zone(id="hosts", routing="None", parent=None)
    names = [f"host{index}" for index in range(count)]
    master = Host(name="master_host", speeds=(1e9,), zone="hosts", role="master")
    compute = tuple(Host(name=name, speeds=(1e9,), zone="hosts") for name in names)
    hosts = {host.name: host for host in (master, *compute)}
    return Platform(
        name=f"{count} hosts",
        master=master.name,
        compute=compute,
        hosts=hosts,
        zones={"hosts": zone},
        ways={},
    )


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = DIGITS.split(name)
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)


AMOUNT: Final = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*"
)
PREFIXES: Final = {
    "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip
SECONDS: Final = {
    "": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12,
    "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip


def speed_of(text: str) -> float:
    """Return flop/s.

    >>> speed_of("1Gf"), speed_of("16.673E9flops"), speed_of("100.0f")
    (1000000000.0, 16673000000.0, 100.0)
    """
    number, unit = _split(text)
    for ending in ("flops", "f", ""):
        if unit.endswith(ending) and unit.removesuffix(ending) in PREFIXES:
            return number * PREFIXES[unit.removesuffix(ending)]
    raise ValueError(f"{text!r} is not a speed: write 1Gf, 100Mf or 2.5E9f")


def bandwidth_of(text: str) -> float:
    """Return bytes/s.

    >>> bandwidth_of("125MBps"), bandwidth_of("56Gbps"), bandwidth_of("1.25E8Bps")
    (125000000.0, 7000000000.0, 125000000.0)
    """
    number, unit = _split(text)
    for ending, factor in (("Bps", 1.0), ("bps", 1 / 8)):
        if unit.endswith(ending) and unit.removesuffix(ending) in PREFIXES:
            return number * PREFIXES[unit.removesuffix(ending)] * factor
    if not unit:
        return number
    raise ValueError(f"{text!r} is not a bandwidth: write 125MBps or 10Gbps")


def seconds_of(text: str) -> float:
    """Return seconds.

    >>> seconds_of("50ms"), seconds_of("1.5E-6s"), seconds_of("0")
    (0.05, 1.5e-06, 0.0)
    """
    number, unit = _split(text)
    if unit in SECONDS:
        return number * SECONDS[unit]
    raise ValueError(f"{text!r} is not a latency: write 50us or 1.5ms")


def _split(text: str) -> tuple[float, str]:
    found = AMOUNT.fullmatch(text)
    if found is None or not math.isfinite(float(found[1])):
        raise ValueError(f"{text!r} must be a number with a unit, not negative")
    return float(found[1]), found[2]

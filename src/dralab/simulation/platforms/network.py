"""Transfer times between hosts that have the network to themselves.

T = the largest of (bytes on a way) / (its bandwidth), plus the largest latency of a route used.
That is what SimGrid's model gives for one parallel task alone; tasks that share a link at the same
time would slow each other down, which the engine counts and reports instead of computing.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dralab.scenarios.errors import InputError
from dralab.simulation.platforms.platform import Host, Link, Platform, Way, Zone

# SimGrid's loopback, used where a platform names none.
LOOPBACK: Final = Link(bandwidth=498e6, latency=15e-6, shared=False)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds of sending, seconds of latency, and the ways that were used."""

    sending: float
    latency: float
    ways: frozenset[Way]


class Network:
    """The routes of a platform, found once each."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._routes: dict[tuple[str, str], tuple[Way, ...]] = {}

    def transfer(self, flows: Iterable[tuple[Host, Host, float]]) -> Transfer:
        """Return how long the flows (from, to, bytes) take together."""
        load: dict[Way, float] = defaultdict(float)
        longest, latency = 0.0, 0.0
        for source, target, amount in flows:
            if amount <= 0:
                continue
            if source.name == target.name and not self._has_route_to_itself(source):
                longest = max(longest, amount / LOOPBACK.bandwidth)
                latency = max(latency, LOOPBACK.latency)
                continue
            route = self.route(source, target)
            late = sum(self.platform.ways[way].latency for way in route)
            latency = max(latency, late + self._distance(source, target))
            for way in route:
                link = self.platform.ways[way]
                if link.shared:
                    load[way] += amount
                else:
                    longest = max(longest, amount / link.bandwidth)
        for way, amount in load.items():
            longest = max(longest, amount / self.platform.ways[way].bandwidth)
        return Transfer(longest, latency, frozenset(load))

    def all_to_all(self, hosts: tuple[Host, ...], amount: float) -> Transfer:
        """Return how long `amount` bytes between each ordered pair of distinct hosts take."""
        count = len(hosts)
        zone = self.platform.zones[hosts[0].zone]
        if count < 2 or amount <= 0:
            return Transfer(0.0, 0.0, frozenset())
        same = all(host.zone == zone.id and host.name in zone.private for host in hosts)
        one_place = len({host.name for host in hosts}) < count
        if not same or one_place:
            return self.transfer((a, b, amount) for a in hosts for b in hosts if a is not b)
        # Plain cluster: every private way carries n - 1 flows, the backbone all of them.
        ways = {way: amount * (count - 1) for host in hosts for way in zone.private[host.name]}
        latency = 2 * max(self.platform.ways[way].latency for way in ways)
        if zone.backbone is not None:
            ways[zone.backbone] = amount * count * (count - 1)
            latency += self.platform.ways[zone.backbone].latency
        sending = max(load / self.platform.ways[way].bandwidth for way, load in ways.items())
        return Transfer(sending, latency, frozenset(ways))

    def route(self, source: Host, target: Host) -> tuple[Way, ...]:
        """Return the ways from one host to another; InputError if there is no route."""
        key = (source.name, target.name)
        found = self._routes.get(key)
        if found is None:
            found = self._between(source.name, source.zone, target.name, target.zone)
            self._routes[key] = found
        return found

    def _has_route_to_itself(self, host: Host) -> bool:
        """Whether a host's messages to itself use links: in clusters without loopbacks."""
        zone = self.platform.zones[host.zone]
        return (
            (host.name, host.name) in zone.routes
            or host.name in zone.private
            or host.name in zone.coordinates
        )

    def _distance(self, source: Host, target: Host) -> float:
        """Return the seconds between two hosts of a Vivaldi zone."""
        places = self.platform.zones[source.zone].coordinates
        if source.zone != target.zone or source.name not in places or target.name not in places:
            return 0.0
        (ax, ay, above), (bx, by, beyond) = places[source.name], places[target.name]
        return (math.hypot(ax - bx, ay - by) + abs(above) + abs(beyond)) / 1000

    def _between(self, source: str, in_a: str, target: str, in_b: str) -> tuple[Way, ...]:
        zones = self.platform.zones
        above_a, above_b = _ancestors(zones, in_a), _ancestors(zones, in_b)
        common = next((zone for zone in above_a if zone in above_b), None)
        if common is None:
            raise self._no_route(source, target)
        index_a, index_b = above_a.index(common), above_b.index(common)
        if index_a == 0 and index_b == 0:
            return self._within(zones[common], source, target)
        end_a = source if index_a == 0 else above_a[index_a - 1]
        end_b = target if index_b == 0 else above_b[index_b - 1]
        ways = zones[common].routes.get((end_a, end_b))
        if ways is None:
            raise self._no_route(source, target)
        gateway_a, gateway_b = zones[common].gateways[end_a, end_b]
        before = self._to_gateway(source, in_a, gateway_a) if index_a else ()
        after = self._to_gateway(target, in_b, gateway_b) if index_b else ()
        return (*before, *ways, *reversed(after))

    def _to_gateway(self, host: str, zone: str, gateway: str) -> tuple[Way, ...]:
        if not gateway or gateway == host:
            return ()
        zones = self.platform.zones
        if gateway in zones[zone].routers or gateway in zones[zone].private:
            return self._within(zones[zone], host, gateway)
        for other in zones.values():
            if gateway in other.routers or (
                gateway in self.platform.hosts and self.platform.hosts[gateway].zone == other.id
            ):
                return self._between(host, zone, gateway, other.id)
        raise self._no_route(host, gateway)

    def _within(self, zone: Zone, source: str, target: str) -> tuple[Way, ...]:
        listed = zone.routes.get((source, target))
        if listed is not None:
            return listed
        if zone.routing == "Cluster":
            up = zone.private[source][:1] if source in zone.private else ()
            down = zone.private[target][1:] if target in zone.private else ()
            if up or down:
                return (*up, *(() if zone.backbone is None else (zone.backbone,)), *down)
        if source in zone.coordinates and target in zone.coordinates:
            return ()
        raise self._no_route(source, target)

    def _no_route(self, source: str, target: str) -> InputError:
        return InputError(self.platform.name, f"there is no route from {source!r} to {target!r}")


def _ancestors(zones: Mapping[str, Zone], zone: str) -> list[str]:
    path, current = [], zones.get(zone)
    while current is not None:
        path.append(current.id)
        current = zones.get(current.parent) if current.parent is not None else None
    return path

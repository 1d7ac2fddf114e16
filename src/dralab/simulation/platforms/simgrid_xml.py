"""SimGrid's platform files: the subset that Batsim's own files use.

Read with expat and without anything a document could reach out or blow up with: a DOCTYPE is
skipped, an entity or a stylesheet is refused, nothing is fetched, and sizes are bounded.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from xml.parsers import expat

from dralab.scenarios.errors import InputError, content_of
from dralab.simulation.platforms.platform import (
    MOST_HOSTS,
    Host,
    Link,
    Platform,
    Power,
    Role,
    Way,
    Zone,
    bandwidth_of,
    in_order,
    seconds_of,
    speed_of,
)

LARGEST_PLATFORM: Final = 64 << 20
DEEPEST: Final = 64
ROUTINGS: Final = frozenset({"Full", "Cluster", "None", "Vivaldi"})
RADICAL: Final = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
ROLES: Final[Mapping[str, Role]] = {
    "master": "master", "compute_node": "compute_node", "storage": "storage",
}  # fmt: skip

Attributes = dict[str, str]


def read(path: Path, *, master: str = "master_host") -> Platform:
    """Return the platform of a file. InputError, with the line."""
    raw = content_of(path, LARGEST_PLATFORM)
    # Three of Batsim's own files begin with a blank line, which XML forbids before <?xml.
    stripped = raw.lstrip()
    reader = _PlatformReader(path, raw[: len(raw) - len(stripped)].count(b"\n"))
    reader.feed(stripped)
    return reader.platform(master)


class _PlatformReader:
    def __init__(self, path: Path, skipped_lines: int) -> None:
        self.path = path
        self.skipped_lines = skipped_lines
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.EntityDeclHandler = self.refuse_entity
        self.parser.ExternalEntityRefHandler = self.refuse_entity
        self.parser.SkippedEntityHandler = self.refuse_entity
        self.zones: dict[str, Zone] = {}
        self.hosts: dict[str, Host] = {}
        self.ways: dict[Way, Link] = {}
        self.open_zones: list[str] = []
        self.open_tags: list[str] = []
        self.zone_properties: dict[str, dict[str, str]] = {}
        self.pending_hosts: list[Host] = []
        self.pending_route: tuple[str, str, str, Attributes] | None = None
        self.pending_ways: list[Way] = []

    def feed(self, raw: bytes) -> None:
        try:
            self.parser.Parse(raw, True)  # noqa: FBT003 - expat's own argument
        except expat.ExpatError as error:
            raise InputError(
                self.path,
                f"is not XML: {expat.ErrorString(error.code)}",
                line=error.lineno + self.skipped_lines,
            ) from None
        except InputError:
            raise
        except (LookupError, ValueError):  # of the codec that the first line names
            raise InputError(
                self.path, "has an encoding that cannot be read: write UTF-8", line=1
            ) from None

    def error(self, problem: str, where: str = "") -> InputError:
        line = self.parser.CurrentLineNumber + self.skipped_lines
        return InputError(self.path, problem, line=line, where=where)

    def refuse_entity(self, *_: object) -> int:
        raise self.error("entities are not read: write the value itself")

    # --- elements -------------------------------------------------------------------------

    def start(self, tag: str, attributes: Attributes) -> None:
        self.open_tags.append(tag)
        if len(self.open_tags) > DEEPEST:
            raise self.error(f"is nested more than {DEEPEST} deep")
        handlers: dict[str, Callable[[str, Attributes], None]] = {
            "platform": self.on_platform, "zone": self.on_zone, "AS": self.on_zone,
            "host": self.on_host, "cluster": self.on_cluster, "cabinet": self.on_cabinet,
            "backbone": self.on_backbone, "link": self.on_link, "host_link": self.on_host_link,
            "route": self.on_route, "zoneRoute": self.on_route, "ASroute": self.on_route,
            "link_ctn": self.on_link_use, "router": self.on_router, "prop": self.on_property,
            "config": self.on_nothing,
        }  # fmt: skip
        handler = handlers.get(tag)
        if handler is None:
            raise self.error(f"<{tag}> is not supported")
        handler(tag, attributes)

    def end(self, tag: str) -> None:
        self.open_tags.pop()
        if tag in {"zone", "AS"}:
            self.open_zones.pop()
        elif tag in {"host", "cluster", "cabinet"}:
            for host in self.pending_hosts:
                self.hosts[host.name] = self.finished(host)
            self.pending_hosts = []
        elif tag in {"route", "zoneRoute", "ASroute"}:
            self.close_route()

    def on_nothing(self, *_: object) -> None:
        """Ignore an element, such as <config> with SimGrid's own settings."""

    def on_platform(self, *_: object) -> None:
        if len(self.open_tags) != 1:
            raise self.error("<platform> must be the root")

    def on_zone(self, tag: str, attributes: Attributes) -> None:
        identity = self.need(tag, attributes, "id")
        routing = attributes.get("routing", "None")
        if routing not in ROUTINGS:
            known = ", ".join(sorted(ROUTINGS))
            raise self.error(f"{routing!r} is not supported: use one of {known}", f"{tag}.routing")
        self.open_zone(identity, routing)
        self.open_zones.append(identity)

    def open_zone(self, identity: str, routing: str) -> Zone:
        if identity in self.zones:
            raise self.error(f"there are two zones {identity!r}", "zone.id")
        parent = self.open_zones[-1] if self.open_zones else None
        zone = Zone(id=identity, routing=routing, parent=parent)
        self.zones[identity] = zone
        self.zone_properties[identity] = (
            dict(self.zone_properties.get(parent, {})) if parent is not None else {}
        )
        return zone

    def zone(self, tag: str) -> Zone:
        if not self.open_zones:
            raise self.error(f"<{tag}> must be inside a zone")
        return self.zones[self.open_zones[-1]]

    def on_host(self, tag: str, attributes: Attributes) -> None:
        zone, name = self.zone(tag), self.need(tag, attributes, "id")
        self.add_host(tag, name, attributes, zone.id)
        if zone.routing == "Vivaldi":
            zone.coordinates[name] = self.coordinates(attributes.get("coordinates", "0 0 0"))

    def coordinates(self, text: str) -> tuple[float, float, float]:
        parts = text.split()
        try:
            x, y, height = (float(part) for part in parts)
        except ValueError:
            raise self.error(
                f"{text!r} must be three numbers: x, y and height", "host.coordinates"
            ) from None
        if not all(math.isfinite(part) for part in (x, y, height)):
            raise self.error(f"{text!r} must be finite numbers", "host.coordinates")
        return x, y, height

    def add_host(self, tag: str, name: str, attributes: Attributes, zone: str) -> None:
        if name in self.hosts or any(host.name == name for host in self.pending_hosts[-1:]):
            raise self.error(f"there are two hosts {name!r}", f"{tag}.id")
        if len(self.hosts) + len(self.pending_hosts) >= MOST_HOSTS:
            raise self.error(f"there are more than {MOST_HOSTS} hosts")
        try:
            speeds = tuple(
                speed_of(part) for part in self.need(tag, attributes, "speed").split(",")
            )
            cores = int(attributes.get("core", "1"))
        except ValueError as error:
            raise self.error(str(error), f"{tag}.speed") from None
        if min(speeds) <= 0 or cores < 1:
            raise self.error("speed and core must be above 0", f"{tag}.speed")
        self.pending_hosts.append(
            Host(
                name=name,
                speeds=speeds,
                zone=zone,
                cores=cores,
                line=self.parser.CurrentLineNumber + self.skipped_lines,
            )
        )

    def on_cluster(self, tag: str, attributes: Attributes) -> None:
        identity = self.need(tag, attributes, "id")
        self.zone(tag)
        zone = self.open_zone(identity, "Cluster")
        self.add_members(tag, attributes, zone)
        prefix, suffix = attributes.get("prefix", ""), attributes.get("suffix", "")
        zone.routers.add(attributes.get("router_id") or f"{prefix}{identity}_router{suffix}")
        if "bb_bw" in attributes:
            zone.backbone = self.add_way(
                f"{identity}/backbone", tag, attributes["bb_bw"], attributes.get("bb_lat", "0")
            )

    def on_cabinet(self, tag: str, attributes: Attributes) -> None:
        zone = self.zone(tag)
        if zone.routing != "Cluster":
            raise self.error("<cabinet> must be inside a zone with Cluster routing")
        self.add_members(tag, attributes, zone)

    def add_members(self, tag: str, attributes: Attributes, zone: Zone) -> None:
        prefix, suffix = attributes.get("prefix", ""), attributes.get("suffix", "")
        bandwidth, latency = self.need(tag, attributes, "bw"), attributes.get("lat", "0")
        for number in self.radical(tag, self.need(tag, attributes, "radical")):
            name = f"{prefix}{number}{suffix}"
            self.add_host(tag, name, attributes, zone.id)
            zone.private[name] = (
                self.add_way(f"{name}/up", tag, bandwidth, latency),
                self.add_way(f"{name}/down", tag, bandwidth, latency),
            )
            if "loopback_bw" in attributes:
                loop, late = attributes["loopback_bw"], attributes.get("loopback_lat", "0")
                way = self.add_way(f"{name}/loopback", tag, loop, late, shared=False)
                zone.routes[name, name] = (way,)

    def radical(self, tag: str, text: str) -> list[int]:
        numbers: list[int] = []
        for part in text.split(","):
            found = RADICAL.fullmatch(part)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
            if last < first or last - first + len(numbers) >= MOST_HOSTS:
                raise self.error(f"{part!r} is not a range of numbers", f"{tag}.radical")
            numbers.extend(range(first, last + 1))
        return numbers

    def on_backbone(self, tag: str, attributes: Attributes) -> None:
        zone = self.zone(tag)
        zone.backbone = self.add_way(
            f"{zone.id}/{self.need(tag, attributes, 'id')}",
            tag,
            self.need(tag, attributes, "bandwidth"),
            attributes.get("latency", "0"),
        )

    def on_link(self, tag: str, attributes: Attributes) -> None:
        zone = self.zone(tag)
        policy = attributes.get("sharing_policy", "SHARED")
        for ending in ("", "_UP", "_DOWN") if policy == "SPLITDUPLEX" else ("",):
            self.add_way(
                f"{zone.id}/{self.need(tag, attributes, 'id')}{ending}",
                tag,
                self.need(tag, attributes, "bandwidth"),
                attributes.get("latency", "0"),
                shared=policy != "FATPIPE",
            )

    def add_way(
        self, name: str, tag: str, bandwidth: str, latency: str, *, shared: bool = True
    ) -> Way:
        way = Way(name)
        try:
            link = Link(bandwidth_of(bandwidth), seconds_of(latency), shared)
        except ValueError as error:
            raise self.error(str(error), f"{tag}.bandwidth") from None
        if link.bandwidth <= 0:
            raise self.error("a bandwidth must be above 0", f"{tag}.bandwidth")
        if way in self.ways:
            raise self.error(f"there are two links {name!r}", f"{tag}.id")
        self.ways[way] = link
        return way

    def on_host_link(self, tag: str, attributes: Attributes) -> None:
        zone = self.zone(tag)
        up, down = (
            self.known_way(tag, self.need(tag, attributes, key), "") for key in ("up", "down")
        )
        zone.private[self.need(tag, attributes, "id")] = (up, down)

    def known_way(self, tag: str, name: str, direction: str) -> Way:
        for zone in reversed(self.open_zones):
            for candidate in (f"{zone}/{name}_{direction}", f"{zone}/{name}"):
                if candidate in self.ways:
                    return Way(candidate)
        raise self.error(f"there is no link {name!r}", f"{tag}.id")

    def on_route(self, tag: str, attributes: Attributes) -> None:
        source, target = self.need(tag, attributes, "src"), self.need(tag, attributes, "dst")
        self.zone(tag)
        self.pending_route = (tag, source, target, attributes)
        self.pending_ways = []

    def on_link_use(self, tag: str, attributes: Attributes) -> None:
        if self.pending_route is None:
            raise self.error("<link_ctn> must be inside a route")
        way = self.known_way(
            tag, self.need(tag, attributes, "id"), attributes.get("direction", "NONE")
        )
        self.pending_ways.append(way)

    def close_route(self) -> None:
        if self.pending_route is None:
            return
        tag, source, target, attributes = self.pending_route
        self.pending_route = None
        zone, ways = self.zone(tag), tuple(self.pending_ways)
        gateways = (attributes.get("gw_src", ""), attributes.get("gw_dst", ""))
        both = attributes.get("symmetrical", "YES").upper() != "NO"
        if (source, target) in zone.routes and not (both and source == target):
            raise self.error(f"there are two routes from {source!r} to {target!r}", tag)
        zone.routes[source, target] = ways
        zone.gateways[source, target] = gateways
        if both and (target, source) not in zone.routes:
            zone.routes[target, source] = tuple(_turned(way, self.ways) for way in reversed(ways))
            zone.gateways[target, source] = (gateways[1], gateways[0])

    def on_router(self, tag: str, attributes: Attributes) -> None:
        self.zone(tag).routers.add(self.need(tag, attributes, "id"))

    def on_property(self, tag: str, attributes: Attributes) -> None:
        parent = self.open_tags[-2] if len(self.open_tags) > 1 else ""
        name, value = self.need(tag, attributes, "id"), attributes.get("value", "")
        if parent in {"host", "cluster", "cabinet"}:
            self.pending_hosts = [_with_property(host, name, value) for host in self.pending_hosts]
        elif parent in {"zone", "AS"}:
            self.zone_properties[self.open_zones[-1]][name] = value

    def need(self, tag: str, attributes: Attributes, key: str) -> str:
        value = attributes.get(key, "").strip()
        if not value:
            raise self.error(f"{key} must be given", tag)
        return value

    # --- results --------------------------------------------------------------------------

    def finished(self, host: Host) -> Host:
        """Return the host with what its properties say."""
        properties = host.properties
        role: Role = ROLES.get(properties.get("role", ""), "compute_node")
        if "role" in properties and properties["role"].split(",")[0] not in ROLES:
            raise self.error(
                f"{properties['role']!r} is not one of {', '.join(ROLES)}", "prop role"
            )
        power: tuple[Power, ...] = ()
        if "wattage_per_state" in properties:
            try:
                power = tuple(_power(part) for part in properties["wattage_per_state"].split(","))
            except ValueError as error:
                raise self.error(str(error), "prop wattage_per_state") from None
        return Host(
            name=host.name,
            speeds=host.speeds,
            zone=host.zone,
            role=role,
            cores=host.cores,
            power=power,
            properties=properties,
            zone_properties=dict(self.zone_properties[host.zone]),
            line=host.line,
        )

    def platform(self, master: str) -> Platform:
        """Return the whole; exactly one host must be the master."""
        masters = [host for host in self.hosts.values() if host.role == "master"]
        if not masters:
            # `0`: the name of a cluster of one, as Batsim's own files have it.
            masters = [self.hosts[n] for n in (master, f"{master}0") if n in self.hosts][:1]
        if len(masters) != 1:
            names = ", ".join(repr(host.name) for host in masters[:3]) or "none"
            raise InputError(
                self.path,
                f"exactly one host must have the role master or the name {master!r}, not {names}",
            )
        others = [host for host in self.hosts.values() if host.name != masters[0].name]
        return Platform(
            name=self.path.name,
            master=masters[0].name,
            compute=in_order(host for host in others if host.role != "storage"),
            storage=in_order(host for host in others if host.role == "storage"),
            hosts=self.hosts,
            zones=self.zones,
            ways=self.ways,
        )


def _with_property(host: Host, name: str, value: str) -> Host:
    return Host(
        name=host.name,
        speeds=host.speeds,
        zone=host.zone,
        cores=host.cores,
        properties={**host.properties, name: value},
        line=host.line,
    )


def _turned(way: Way, ways: Mapping[Way, Link]) -> Way:
    """Return the reverse direction of a link."""
    for ending, other in (("_UP", "_DOWN"), ("_DOWN", "_UP")):
        candidate = Way(way.removesuffix(ending) + other)
        if way.endswith(ending) and candidate in ways:
            return candidate
    return way


def _power(text: str) -> Power:
    numbers = [float(part) for part in text.split(":")]
    if len(numbers) not in {1, 2, 3} or min(numbers) < 0:
        raise ValueError(f"{text.strip()!r} must be idle:full or idle:least:full, in watts")
    least = numbers[1] if len(numbers) == 3 else numbers[0]
    return Power(idle=numbers[0], least=least, full=numbers[-1])

"""The `/etc/resolv.conf` of a pod: its `dnsPolicy` and `dnsConfig`.

Source of the rules, limits and texts: kubelet 1.36 (`network/dns/dns.go`). The server itself, such
as CoreDNS, is a pod of the cluster.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

CLUSTER_DOMAIN: Final = "cluster.local"
CLUSTER_OPTIONS: Final = ("ndots:5",)
MOST_SERVERS: Final = 3
MOST_PATHS: Final = 32
LONGEST_PATH: Final = 253
LONGEST_LINE: Final = 2048


@dataclass(frozen=True, slots=True)
class ClusterDns:
    """The DNS server of a cluster, and its domain."""

    server: str
    domain: str = CLUSTER_DOMAIN


@dataclass(frozen=True, slots=True)
class ResolvConf:
    """The text of a file, and what was left out of it."""

    text: str
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class _Config:
    servers: list[str] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    def add_options(self, words: Sequence[str]) -> None:
        for word in words:
            name, _, value = word.partition(":")
            self.options[name] = value


def resolv_conf(pod: JsonDict, machine: str, dns: ClusterDns | None = None) -> ResolvConf:
    """Return the file of a pod; `machine` is the text of the machine's own.

    Without a server of the cluster, `ClusterFirst` is the same as `Default`.
    """
    spec, config = pod["spec"], _read(machine)
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    if policy == "ClusterFirst" and spec.get("hostNetwork"):
        policy = "Default"
    if policy == "None":
        config = _Config()
    elif policy != "Default" and dns is not None:
        namespace = pod["metadata"].get("namespace", "")
        own = [f"{namespace}.svc.{dns.domain}", f"svc.{dns.domain}", dns.domain]
        config = _Config([dns.server], [*own, *config.searches])
        config.add_options(CLUSTER_OPTIONS)
    given = spec.get("dnsConfig") or {}
    config.servers += given.get("nameservers") or ()
    config.searches += given.get("searches") or ()
    for each in given.get("options") or ():
        config.options[each["name"]] = each.get("value") or ""
    return _limited(config)


def _read(text: str) -> _Config:
    """Parse a file; of search lines the last one counts."""
    found = _Config()
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver":
            found.servers += rest[:1]
        elif word == "search":
            found.searches = [each.removesuffix(".") for each in rest if each != "."]
        elif word == "options":
            found.add_options(rest)
    return found


def _limited(config: _Config) -> ResolvConf:
    warnings = []
    servers = list(dict.fromkeys(config.servers))
    if len(servers) > MOST_SERVERS:
        servers = servers[:MOST_SERVERS]
        warnings.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied "
            f"nameserver line is: {' '.join(servers)}"
        )
    wanted = list(dict.fromkeys(config.searches))
    searches = [each for each in wanted[:MOST_PATHS] if len(each) <= LONGEST_PATH]
    while len(" ".join(searches)) > LONGEST_LINE:
        searches.pop()
    if searches != wanted:
        warnings.append(
            "Search Line limits were exceeded, some search paths have been omitted, the applied "
            f"search line is: {' '.join(searches)}"
        )
    options = [f"{name}:{value}" if value else name for name, value in config.options.items()]
    lines = [f"search {' '.join(searches)}"] if searches else []
    lines += [f"nameserver {each}" for each in servers]
    lines += [f"options {' '.join(options)}"] if options else []
    return ResolvConf("\n".join([*lines, ""]), warnings)

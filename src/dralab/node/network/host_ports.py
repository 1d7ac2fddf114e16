"""The rules by which ports of a node lead to its pods: `hostPort` and `hostIP`, for nftables.

As the CNI plugin portmap has it: a connection to a node's own address is sent on to the pod, from
elsewhere and from the node alike. The rules come before those of kube-proxy, whose priorities are
-100 and 100. Nothing here runs `nft`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

TABLE: Final = "dralab_host_ports"
ANY: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - the node's addresses, in its namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A port of a node that leads to one of a pod; `host` is empty for all its addresses."""

    host: str
    port: int
    protocol: str
    pod: str
    pod_port: int


def host_ports_of(pod: JsonDict, ip: str) -> list[HostPort]:
    """Return the ports that a pod with an address has on its node."""
    if pod["spec"].get("hostNetwork"):
        return []
    inits = pod["spec"].get("initContainers") or ()
    sidecars = [each for each in inits if each.get("restartPolicy") == "Always"]
    return [
        HostPort(
            host="" if (host := port.get("hostIP") or "") in ANY else host,
            port=port["hostPort"],
            protocol=port.get("protocol", "TCP").lower(),
            pod=ip,
            pod_port=port["containerPort"],
        )
        for container in (*sidecars, *pod["spec"]["containers"])
        for port in container.get("ports") or ()
        # A pair of namespaces carries IPv4 alone here.
        if port.get("hostPort") and ":" not in (port.get("hostIP") or "").removeprefix("::")
    ]


def rules(ports: Sequence[HostPort]) -> str:
    """Return the input of `nft -f`, which replaces the earlier rules."""
    replaced = f"table ip {TABLE}\ndelete table ip {TABLE}\n"
    if not ports:
        return replaced
    # Those of one address first: they are more particular than those of all.
    ordered = sorted(ports, key=lambda each: (not each.host, each.protocol, each.port, each.host))
    pods = sorted({each.pod for each in ports})
    return replaced + "\n".join(
        [
            f"table ip {TABLE} {{",
            *_chain("ports", [_rule(each) for each in ordered]),
            *_chain(
                "prerouting",
                ["type nat hook prerouting priority -105;", "fib daddr type local jump ports"],
            ),
            *_chain(
                "output",
                ["type nat hook output priority -105;", "fib daddr type local jump ports"],
            ),
            *_chain(
                "postrouting",
                [
                    "type nat hook postrouting priority 95;",
                    # A pod would answer these to itself.
                    'ip saddr 127.0.0.0/8 oifname != "lo" masquerade',
                    *(f"ip saddr {pod} ip daddr {pod} masquerade" for pod in pods),
                ],
            ),
            *_chain(
                "loopback",
                [
                    # Packets from elsewhere must not reach 127.0.0.1, except by these ports.
                    "type filter hook input priority filter;",
                    'iifname != "lo" ip daddr 127.0.0.0/8 ct status & dnat == 0 drop',
                ],
            ),
            "}",
            "",
        ]
    )


def needs_loopback(ports: Iterable[HostPort]) -> bool:
    """Return whether one of them is on an address of the loopback."""
    return any(not each.host or each.host.startswith("127.") for each in ports)


def _rule(each: HostPort) -> str:
    where = f"ip daddr {each.host} " if each.host else ""
    return f"{where}{each.protocol} dport {each.port} dnat to {each.pod}:{each.pod_port}"


def _chain(name: str, lines: Sequence[str]) -> list[str]:
    return [f"  chain {name} {{", *(f"    {line}" for line in lines), "  }"]

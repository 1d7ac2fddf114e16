"""The name of a pod's host and the files in `/etc` that a kubelet writes for its containers.

What `/etc/resolv.conf` says is decided in `resolv_conf`. Source: kubelet 1.36 (`kubelet_pods.go`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from dralab.files.reading import read
from dralab.node.resolv_conf import CLUSTER_DOMAIN, ClusterDns, resolv_conf
from dralab.values.json_types import JsonDict, JsonObject

HOSTS: Final = "/etc/hosts"
RESOLV: Final = "/etc/resolv.conf"
LONGEST_NAME: Final = 63
HEADER: Final = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


def hostname_of(pod: JsonDict, node: str = "") -> str:
    """Return the name of a pod's host; empty if it is the machine's.

    With a network of its own a `node` is the host of pods on that network.
    """
    spec = pod["spec"]
    if over := spec.get("hostnameOverride"):
        return str(over)
    if spec.get("hostNetwork"):
        return node[:LONGEST_NAME].rstrip("-.")
    name = spec.get("hostname") or pod["metadata"]["name"]
    return str(name)[:LONGEST_NAME].rstrip("-.")


def etc_files(pod: JsonDict, ip: str, dns: ClusterDns | None = None) -> dict[str, str]:
    """Return the files of a pod by their path, those that differ from the machine's."""
    spec, found = pod["spec"], {}
    aliases = _aliases(spec.get("hostAliases") or ())
    if not spec.get("hostNetwork"):
        name, names = hostname_of(pod), ""
        if spec.get("subdomain"):
            namespace = pod["metadata"].get("namespace", "")
            names = f"{name}.{spec['subdomain']}.{namespace}.svc.{CLUSTER_DOMAIN}\t"
        found[HOSTS] = f"{HEADER}{ip}\t{names}{name}\n{aliases}"
    elif aliases:
        found[HOSTS] = "# Kubernetes-managed hosts file (host network).\n" + _read(HOSTS) + aliases
    if spec.get("dnsConfig") or dns is not None:
        found[RESOLV] = resolv_conf(pod, _read(RESOLV), dns).text
    return found


def etc_warnings(pod: JsonDict, dns: ClusterDns | None = None) -> Sequence[str]:
    """Return a pod's name servers and search paths that are left out, for its events."""
    if not pod["spec"].get("dnsConfig") and dns is None:
        return ()
    return resolv_conf(pod, _read(RESOLV), dns).warnings


def _aliases(aliases: Iterable[JsonObject]) -> str:
    lines = ["\t".join([each["ip"], *(each.get("hostnames") or ())]) for each in aliases]
    return "\n".join(["", "# Entries added by HostAliases.", *lines, ""]) if lines else ""


def _read(path: str) -> str:
    try:
        return read(path).decode(errors="replace")
    except OSError:
        return ""

"""The name of a pod's host and the files in `/etc` that a kubelet writes for its containers.

There is no cluster DNS: a pod has the machine's resolv.conf, with its own `dnsConfig` added, or
that alone (`dnsPolicy: None`). Source: kubelet 1.36 (`kubelet_pods.go`, `network/dns/dns.go`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dralab.values.json_types import JsonDict, JsonObject

HOSTS: Final = "/etc/hosts"
RESOLV: Final = "/etc/resolv.conf"
LONGEST_NAME: Final = 63
CLUSTER_DOMAIN: Final = "cluster.local"
HEADER: Final = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


def hostname_of(pod: JsonDict) -> str:
    """Return the name of a pod's host; empty if it is the machine's."""
    spec = pod["spec"]
    if over := spec.get("hostnameOverride"):
        return str(over)
    if spec.get("hostNetwork"):
        return ""
    name = spec.get("hostname") or pod["metadata"]["name"]
    return str(name)[:LONGEST_NAME].rstrip("-.")


def etc_files(pod: JsonDict, ip: str) -> dict[str, str]:
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
    alone = spec.get("dnsPolicy") == "None"
    if config := spec.get("dnsConfig"):
        found[RESOLV] = _resolv(config, "" if alone else _read(RESOLV))
    return found


def _aliases(aliases: Iterable[JsonObject]) -> str:
    lines = ["\t".join([each["ip"], *(each.get("hostnames") or ())]) for each in aliases]
    return "\n".join(["", "# Entries added by HostAliases.", *lines, ""]) if lines else ""


def _resolv(config: JsonObject, machine: str) -> str:
    """Return a resolv.conf: the machine's, and what a pod adds."""
    servers, searches, options = [], [], {}
    for line in machine.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver":
            servers += rest[:1]
        elif word == "search":
            searches = rest
        elif word == "options":
            options = dict.fromkeys(rest)
    servers += config.get("nameservers") or ()
    searches += config.get("searches") or ()
    for each in config.get("options") or ():
        value = f":{each['value']}" if each.get("value") is not None else ""
        options = {name: None for name in options if name.split(":")[0] != each["name"]}
        options[each["name"] + value] = None
    lines = [f"search {' '.join(dict.fromkeys(searches))}"] if searches else []
    lines += [f"nameserver {each}" for each in dict.fromkeys(servers)]
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join([*lines, ""])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""

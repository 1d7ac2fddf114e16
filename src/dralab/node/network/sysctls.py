"""Kernel parameters of a pod: those that its own namespaces have, and no others.

Source of the list and the texts: kubelet 1.36, `pkg/kubelet/sysctl`.
"""

from typing import Final

from dralab.values.json_types import JsonDict

FORBIDDEN: Final = "SysctlForbidden"
SAFE: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)


def sysctls_of(pod: JsonDict) -> dict[str, str]:
    """Return the parameters that a pod sets, by their names with dots."""
    context = pod["spec"].get("securityContext") or {}
    return {_dotted(each["name"]): each["value"] for each in context.get("sysctls") or ()}


def refusal(pod: JsonDict) -> str:
    """Return the refusal of a pod's kernel parameters; empty if they are allowed.

    >>> refusal(
    ...     {"spec": {"securityContext": {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}}}
    ... )
    'forbidden sysctl: "vm.swappiness" not allowlisted'
    """
    spec = pod["spec"]
    for name in sysctls_of(pod):
        if name not in SAFE:
            return f'forbidden sysctl: "{name}" not allowlisted'
        of_ipc = name.startswith("kernel.")
        if spec.get("hostIPC" if of_ipc else "hostNetwork"):
            space = "IPC" if of_ipc else "Net"
            return f'forbidden sysctl: "{name}" not allowed with host {space} enabled'
    return ""


def _dotted(name: str) -> str:
    """Return a name with dots as separators; the first separator decides its form."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))

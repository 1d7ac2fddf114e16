"""The Pod Security Standards: what pods may do at the levels privileged, baseline and restricted.

Which level a namespace asks for is left to admission. A check returns a finding, or None.
Source: k8s.io/pod-security-admission `policy` as of 1.36; checks and their exact words.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Version = tuple[int, int]
LATEST: Final[Version] = (1, 36)
PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
WINDOWS: Final[Version] = (1, 25)  # from here on, pods of Windows are spared what Linux alone has
OWN_USERS: Final[Version] = (1, 35)  # from here on, pods with users of their own may do more
DEFAULT_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
        "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
VOLUMES: Final = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image",
        "persistentVolumeClaim", "projected", "secret",
    }
)  # fmt: skip
SYSCTLS: Final[Mapping[Version, tuple[str, ...]]] = {
    (1, 0): (
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
    ),
    (1, 27): ("net.ipv4.ip_local_reserved_ports",),
    (1, 29): (
        "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
    ),
    (1, 32): ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}  # fmt: skip
SELINUX_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t")
APPARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
SAFE_PROFILES: Final = ("RuntimeDefault", "Localhost")


@dataclass(frozen=True, slots=True)
class SecurityFinding:
    """A violation of a level: a short reason, and the containers that cause it."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPod:
    """A pod, or a template of one, as the checks read it."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    version: Version

    @property
    def security(self) -> Mapping[str, Any]:
        """What is set for all of its containers."""
        return self.spec.get("securityContext") or {}

    @property
    def containers(self) -> Iterator[tuple[str, JsonDict, JsonDict]]:
        """The name, the security context and the whole of each container."""
        for part in ("initContainers", "containers", "ephemeralContainers"):
            for each in self.spec.get(part) or ():
                yield each.get("name") or "", each.get("securityContext") or {}, each

    @property
    def has_own_users(self) -> bool:
        """Whether it has a user namespace, at a version of the standard that relaxes rules."""
        return self.spec.get("hostUsers") is False and self.version >= OWN_USERS

    @property
    def is_windows(self) -> bool:
        """Whether it is declared for Windows, at a version of the standard that exempts those."""
        name = (self.spec.get("os") or {}).get("name")
        return bool(name == "windows" and self.version >= WINDOWS)


Check = Callable[[CheckedPod], SecurityFinding | None]


def violations(
    level: str, version: Version, metadata: Mapping[str, Any], spec: Mapping[str, Any]
) -> list[SecurityFinding]:
    """Return all violations of a level, in the order of a real server.

    >>> spec = {"hostNetwork": True, "containers": []}
    >>> [str(each) for each in violations("baseline", LATEST, {}, spec)]
    ['host namespaces (hostNetwork=true)']
    """
    if level == PRIVILEGED:
        return []
    pod = CheckedPod(metadata=metadata, spec=spec, version=version)
    checks = list(BASELINE_CHECKS)
    if level == RESTRICTED:
        checks = [check for check in checks if check not in STRICTER] + list(RESTRICTED_CHECKS)
    return [found for check in checks if (found := check(pod)) is not None]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _named(names: Sequence[str], kind: str = "container") -> str:
    """Return `container "a"` or `containers "a", "b"`."""
    return f"{kind}{'s' if len(names) != 1 else ''} {_quoted(names)}"


def _setters(*, pod: bool, containers: Sequence[str]) -> str:
    """Return where something is set: in the pod, in containers, or both."""
    found = ["pod"] if pod else []
    return " and ".join([*found, _named(containers)] if containers else found)


# --- baseline -----------------------------------------------------------------------------------


def _app_armor(pod: CheckedPod) -> SecurityFinding | None:
    values: list[str] = []

    def is_bad(security: Mapping[str, Any]) -> bool:
        kind = (security.get("appArmorProfile") or {}).get("type")
        if kind is None or kind in SAFE_PROFILES:
            return False
        values.append(kind)
        return True

    by_pod = is_bad(pod.security)
    bad = [name for name, security, _ in pod.containers if is_bad(security)]
    annotations = [
        f'{key}="{value}"'
        for key, value in sorted((pod.metadata.get("annotations") or {}).items())
        if key.startswith(APPARMOR_PREFIX)
        and value not in {"", "runtime/default"}
        and not value.startswith("localhost/")
    ]
    shown = [*sorted(set(values)), *annotations]
    if not shown:
        return None
    setters = [_setters(pod=by_pod, containers=bad)] if values else []
    if annotations:
        setters.append("annotation" if len(annotations) == 1 else "annotations")
    reason = f"forbidden AppArmor profile{'s' if len(shown) > 1 else ''}"
    why = f"must not set AppArmor profile type to {_quoted(shown)}"
    return SecurityFinding(reason, f"{' and '.join(setters)} {why}")


def _capabilities(pod: CheckedPod, allowed: frozenset[str]) -> str:
    """Return the containers that add what is not allowed."""
    bad, added = [], set()
    for name, security, _ in pod.containers:
        more = set((security.get("capabilities") or {}).get("add") or ()) - allowed
        if more:
            bad.append(name)
            added |= more
    if not bad:
        return ""
    names = _quoted(sorted(added))
    return f"{_named(bad)} must not include {names} in securityContext.capabilities.add"


def _default_capabilities(pod: CheckedPod) -> SecurityFinding | None:
    found = _capabilities(pod, DEFAULT_CAPABILITIES)
    return SecurityFinding("non-default capabilities", found) if found else None


def _host_namespaces(pod: CheckedPod) -> SecurityFinding | None:
    parts = ("hostNetwork", "hostPID", "hostIPC")
    found = [f"{part}=true" for part in parts if pod.spec.get(part)]
    return SecurityFinding("host namespaces", ", ".join(found)) if found else None


def _host_paths(pod: CheckedPod) -> SecurityFinding | None:
    found = [each["name"] for each in pod.spec.get("volumes") or () if each.get("hostPath")]
    return SecurityFinding("hostPath volumes", _named(found, "volume")) if found else None


def _host_ports(pod: CheckedPod) -> SecurityFinding | None:
    bad, ports = [], set()
    for name, _, container in pod.containers:
        used = {each["hostPort"] for each in container.get("ports") or () if each.get("hostPort")}
        if used:
            bad.append(name)
            ports |= {str(port) for port in used}
    if not bad:
        return None
    verb = f"use{'s' if len(bad) == 1 else ''} hostPort{'s' if len(ports) != 1 else ''}"
    return SecurityFinding("hostPort", f"{_named(bad)} {verb} {', '.join(sorted(ports))}")


def _probe_hosts(pod: CheckedPod) -> SecurityFinding | None:
    if pod.version < (1, 34):
        return None
    bad, hosts = [], set()
    for name, _, container in pod.containers:
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(probe) or {} for probe in PROBES]
        handlers += [lifecycle.get(hook) or {} for hook in ("postStart", "preStop")]
        used = {
            (handler.get(kind) or {}).get("host") or ""
            for handler in handlers
            for kind in ("httpGet", "tcpSocket")
        } - {""}
        if used:
            bad.append(name)
            hosts |= used
    if not bad:
        return None
    verb = f"use{'s' if len(bad) == 1 else ''} probe or lifecycle host"
    detail = f"{_named(bad)} {verb}{'s' if len(hosts) != 1 else ''} {_quoted(sorted(hosts))}"
    return SecurityFinding("probe or lifecycle host", detail)


def _privileged(pod: CheckedPod) -> SecurityFinding | None:
    bad = [name for name, security, _ in pod.containers if security.get("privileged")]
    why = "must not set securityContext.privileged=true"
    return SecurityFinding("privileged", f"{_named(bad)} {why}") if bad else None


def _proc_mounts_baseline(pod: CheckedPod) -> SecurityFinding | None:
    return None if pod.has_own_users else _proc_mounts(pod)


def _proc_mounts_restricted(pod: CheckedPod) -> SecurityFinding | None:
    return _proc_mounts(pod) if pod.has_own_users else None


def _proc_mounts(pod: CheckedPod) -> SecurityFinding | None:
    kinds = {
        name: security["procMount"]
        for name, security, _ in pod.containers
        if security.get("procMount") not in {None, "", "Default"}
    }
    if not kinds:
        return None
    why = f"must not set securityContext.procMount to {_quoted(sorted(set(kinds.values())))}"
    return SecurityFinding("procMount", f"{_named(list(kinds))} {why}")


def _selinux(pod: CheckedPod) -> SecurityFinding | None:
    allowed = {*SELINUX_TYPES, *(["container_engine_t"] if pod.version >= (1, 31) else [])}
    types: set[str] = set()
    parts: set[str] = set()

    def is_bad(security: Mapping[str, Any]) -> bool:
        options = security.get("seLinuxOptions") or {}
        wrong = {options.get("type") or ""} - allowed
        types.update(wrong)
        extra = {part for part in ("user", "role") if options.get(part)}
        parts.update(extra)
        return bool(wrong or extra)

    by_pod = is_bad(pod.security)
    bad = [name for name, security, _ in pod.containers if is_bad(security)]
    if not by_pod and not bad:
        return None
    data = []
    if types:
        data.append(f"type{'s' if len(types) != 1 else ''} {_quoted(sorted(types))}")
    data += [f"{part} may not be set" for part in ("user", "role") if part in parts]
    setters = _setters(pod=by_pod, containers=bad)
    detail = f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    return SecurityFinding("seLinuxOptions", detail)


def _seccomp(pod: CheckedPod) -> tuple[str, list[str]]:
    """Return where an unsafe profile is set, and which containers have none."""
    kinds: set[str] = set()

    def kind_of(security: Mapping[str, Any]) -> str:
        found = (security.get("seccompProfile") or {}).get("type") or ""
        if found and found not in SAFE_PROFILES:
            kinds.add(found)
        return found

    by_pod = kind_of(pod.security)
    each = {name: kind_of(security) for name, security, _ in pod.containers}
    bad = [name for name, kind in each.items() if kind in kinds]
    explicit = ""
    if kinds:
        setters = _setters(pod=by_pod in kinds, containers=bad)
        why = f"must not set securityContext.seccompProfile.type to {_quoted(sorted(kinds))}"
        explicit = f"{setters} {why}"
    return explicit, [name for name, kind in each.items() if not kind and not by_pod]


def _seccomp_baseline(pod: CheckedPod) -> SecurityFinding | None:
    if pod.version < (1, 19):
        return None
    explicit, _ = _seccomp(pod)
    return SecurityFinding("seccompProfile", explicit) if explicit else None


def _sysctls(pod: CheckedPod) -> SecurityFinding | None:
    allowed = {name for since, names in SYSCTLS.items() if pod.version >= since for name in names}
    used = {each.get("name") or "" for each in pod.security.get("sysctls") or ()}
    found = sorted(used - allowed)
    return SecurityFinding("forbidden sysctls", ", ".join(found)) if found else None


def _host_process(pod: CheckedPod) -> SecurityFinding | None:
    def is_bad(security: Mapping[str, Any]) -> bool:
        return bool((security.get("windowsOptions") or {}).get("hostProcess"))

    by_pod = is_bad(pod.security)
    bad = [name for name, security, _ in pod.containers if is_bad(security)]
    if not by_pod and not bad:
        return None
    why = "must not set securityContext.windowsOptions.hostProcess=true"
    return SecurityFinding("hostProcess", f"{_setters(pod=by_pod, containers=bad)} {why}")


# --- restricted ---------------------------------------------------------------------------------


def _privilege_escalation(pod: CheckedPod) -> SecurityFinding | None:
    if pod.version < (1, 8) or pod.is_windows:
        return None
    bad = [
        name
        for name, security, _ in pod.containers
        if security.get("allowPrivilegeEscalation") is not False
    ]
    why = "must set securityContext.allowPrivilegeEscalation=false"
    return (
        SecurityFinding("allowPrivilegeEscalation != false", f"{_named(bad)} {why}")
        if bad
        else None
    )


def _dropped_capabilities(pod: CheckedPod) -> SecurityFinding | None:
    if pod.version < (1, 22):
        return _default_capabilities(pod)
    if pod.is_windows:
        return None
    keeping = [
        name
        for name, security, _ in pod.containers
        if "ALL" not in ((security.get("capabilities") or {}).get("drop") or ())
    ]
    found = []
    if keeping:
        found.append(f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if added := _capabilities(pod, frozenset({"NET_BIND_SERVICE"})):
        found.append(added)
    return SecurityFinding("unrestricted capabilities", "; ".join(found)) if found else None


def _volume_types(pod: CheckedPod) -> SecurityFinding | None:
    bad, types = [], set()
    for volume in pod.spec.get("volumes") or ():
        kinds = {part for part, value in volume.items() if part != "name" and value is not None}
        if wrong := kinds - VOLUMES:
            bad.append(volume["name"])
            types |= wrong
    if not bad:
        return None
    verb = "uses restricted volume type" if len(bad) == 1 else "use restricted volume types"
    detail = f"{_named(bad, 'volume')} {verb} {_quoted(sorted(types))}"
    return SecurityFinding("restricted volume types", detail)


def _non_root(pod: CheckedPod) -> SecurityFinding | None:
    if pod.has_own_users:
        return None
    reason, by_pod = "runAsNonRoot != true", pod.security.get("runAsNonRoot")
    each = {name: security.get("runAsNonRoot") for name, security, _ in pod.containers}
    denying = [name for name, value in each.items() if value is False]
    if by_pod is False or denying:
        setters = _setters(pod=by_pod is False, containers=denying)
        return SecurityFinding(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    silent = [name for name, value in each.items() if value is None]
    if by_pod or not silent:
        return None
    return SecurityFinding(
        reason, f"pod or {_named(silent)} must set securityContext.runAsNonRoot=true"
    )


def _root_user(pod: CheckedPod) -> SecurityFinding | None:
    if pod.version < (1, 23) or pod.has_own_users:
        return None
    by_pod = pod.security.get("runAsUser") == 0
    bad = [name for name, security, _ in pod.containers if security.get("runAsUser") == 0]
    if not by_pod and not bad:
        return None
    return SecurityFinding(
        "runAsUser=0", f"{_setters(pod=by_pod, containers=bad)} must not set runAsUser=0"
    )


def _seccomp_restricted(pod: CheckedPod) -> SecurityFinding | None:
    if pod.version < (1, 19) or pod.is_windows:
        return None
    explicit, silent = _seccomp(pod)
    if explicit:
        return SecurityFinding("seccompProfile", explicit)
    why = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return SecurityFinding("seccompProfile", f"pod or {_named(silent)} {why}") if silent else None


# In the order of the names that the checks have upstream.
BASELINE_CHECKS: Final[Sequence[Check]] = (
    _app_armor, _default_capabilities, _host_namespaces, _host_paths, _host_ports, _probe_hosts,
    _privileged, _proc_mounts_baseline, _selinux, _seccomp_baseline, _sysctls, _host_process,
)  # fmt: skip
RESTRICTED_CHECKS: Final[Sequence[Check]] = (
    _privilege_escalation, _dropped_capabilities, _proc_mounts_restricted, _volume_types,
    _non_root, _root_user,
    _seccomp_restricted,
)  # fmt: skip
# Checks of baseline that those of restricted replace.
STRICTER: Final = frozenset({_default_capabilities, _host_paths, _seccomp_baseline})

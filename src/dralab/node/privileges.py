"""User, groups and capabilities of a container: its security context and its pod's.

Only a process runtime that is root and gives mount namespaces applies this (`mount_launcher`).
Source of the rules: kubelet 1.36 (`pkg/securitycontext`, `pkg/volume/util`).
"""

from typing import Any, Final

from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

# What container runtimes leave to a container that is not privileged (containerd, `oci`).
LEFT: Final = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
    "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Privileges:
    """User, groups and capabilities of a container; None: as the runtime."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    fs_group: int | None = None
    privileged: bool = False
    escalates: bool = True
    read_only_root: bool = False
    capabilities: tuple[str, ...] = LEFT

    def launcher_settings(self) -> dict[str, Any]:
        """Return the settings for the launcher of mount namespaces."""
        return {
            "user": self.user,
            "group": self.group,
            "groups": list(self.groups),
            "capabilities": None if self.privileged else list(self.capabilities),
            "escalates": self.escalates,
            "readOnlyRoot": self.read_only_root,
        }


PLAIN: Final = Privileges()


def privileges_of(pod: JsonDict, container: JsonObject) -> Privileges:
    """Return the privileges of a container of a pod."""
    whole = pod["spec"].get("securityContext") or {}
    own = container.get("securityContext") or {}
    user = own.get("runAsUser", whole.get("runAsUser"))
    group = own.get("runAsGroup", whole.get("runAsGroup"))
    groups = [*(whole.get("supplementalGroups") or ()), *filter(None, [whole.get("fsGroup")])]
    return Privileges(
        user=user,
        group=group if group is not None or user is None else 0,
        groups=tuple(groups),
        fs_group=whole.get("fsGroup"),
        privileged=bool(own.get("privileged")),
        escalates=own.get("allowPrivilegeEscalation") is not False,
        read_only_root=bool(own.get("readOnlyRootFilesystem")),
        capabilities=_capabilities(own.get("capabilities") or {}),
    )


def fs_group(pod: JsonDict) -> int | None:
    """Return the group to which the files of a pod's volumes belong; None if it names none."""
    found: int | None = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return found


def file_owner(pod: JsonDict) -> int | None:
    """Return the user of all containers of a pod; None if they differ or none is named."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    users = {privileges_of(pod, each).user for each in containers}
    return users.pop() if len(users) == 1 else None


def _capabilities(wanted: JsonObject) -> tuple[str, ...]:
    """Return the names of the capabilities that are left, without `CAP_`; "ALL" for all."""
    dropped = {name.removeprefix("CAP_") for name in wanted.get("drop") or ()}
    added = [name.removeprefix("CAP_") for name in wanted.get("add") or ()]
    left = [] if "ALL" in dropped else [name for name in LEFT if name not in dropped]
    return (*left, *(name for name in added if name not in left))

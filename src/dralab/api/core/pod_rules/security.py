"""Security contexts: users, groups, profiles, kernel settings."""

import re
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.pod_rules.parts import MOST_SECONDS
from dralab.api.core.pod_rules.windows import OPTIONS
from dralab.api.core.volume_sources import descending_errors
from dralab.api.fields import FieldError
from dralab.api.rules import (
    Ruleset,
    at_most_bytes,
    between,
    field,
    filled,
    items,
    needs,
    one_of,
    where,
)
from dralab.values.json_types import JsonObject

PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
LONGEST_PROFILE: Final = 4095
SHARED_MEMORY: Final = frozenset(
    f"kernel.{name}"
    for name in (
        "sem", "shm", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "msg", "msgmax", "msgmnb",
        "msgmni",
    )
)  # fmt: skip
LONGEST_SYSCTL: Final = 253
SYSCTL_PART: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
SYSCTL: Final = f"({SYSCTL_PART}[\\./])*{SYSCTL_PART}"
SYSCTL_NAME: Final = re.compile(SYSCTL, re.ASCII)


def unmasked_users(mount: str, path: str, around: Surroundings) -> list[FieldError]:
    """Only a pod with users of its own sees all of /proc."""
    if mount != "Unmasked" or not around.host_users:
        return []
    return [fields.invalid_value(path, mount, "`hostUsers` must be false to use `Unmasked`")]


def no_way_to_escalate(context: JsonObject, path: str) -> list[FieldError]:
    """Where privileges may not grow, there is nothing that lets them."""
    if context.get("allowPrivilegeEscalation") is not False:
        return []
    added = (context.get("capabilities") or {}).get("add") or ()
    whys = ["`privileged` to true"] if context.get("privileged") else []
    whys += ["`capabilities.Add` CAP_SYS_ADMIN" for each in added if each == "CAP_SYS_ADMIN"]
    first = "cannot set `allowPrivilegeEscalation` to false and "
    return [fields.invalid_value(path, _in_go(context), first + why) for why in whys]


def file_of_seccomp(profile: JsonObject, path: str) -> list[FieldError]:
    """Only a profile of the node has a file, below its folder."""
    at, file = f"{path}.localhostProfile", profile.get("localhostProfile")
    if profile.get("type") == "Localhost":
        if file is None:
            return [fields.required(at, "must be set when seccomp type is Localhost")]
        return descending_errors(file, at)
    if file is None:
        return []
    shown = {"Type": profile.get("type") or "", "LocalhostProfile": file}
    why = "can only be set when seccomp type is Localhost"
    return [fields.invalid_value(at, shown, why)]


def file_of_app_armor(profile: JsonObject, path: str) -> list[FieldError]:
    """Only a profile of the node has a name."""
    kind, file = profile.get("type") or "", profile.get("localhostProfile")
    at, errors = f"{path}.localhostProfile", []
    if kind not in PROFILES:
        return []
    if kind != "Localhost":
        why = "can only be set when AppArmor type is Localhost"
        return [] if file is None else [fields.invalid_value(at, file, why)]
    if not file:
        return [fields.required(at, "must be set when AppArmor type is Localhost")]
    if file != file.strip():
        errors.append(fields.invalid_value(at, file, "must not be padded with whitespace"))
    return errors + at_most_bytes(LONGEST_PROFILE)(file, at)


NUMBER: Final = between(0, MOST_SECONDS)
SECCOMP: Final = Ruleset(
    "core.validateSeccompProfileField",
    needs("type", one_of(*PROFILES), why="type is required when seccompProfile is set"),
    file_of_seccomp,
)
APP_ARMOR: Final = Ruleset(
    "core.validateAppArmorProfileField",
    needs("type", one_of(*PROFILES), why="type is required when appArmorProfile is set"),
    file_of_app_armor,
)
WINDOWS_AND_ARMOR: Final = (field("windowsOptions", OPTIONS), field("appArmorProfile", APP_ARMOR))
OF_CONTAINER: Final = Ruleset(
    "core.ValidateSecurityContext",
    field("runAsUser", NUMBER),
    field("runAsGroup", NUMBER),
    field("procMount", one_of("Default", "Unmasked"), unmasked_users),
    field("seccompProfile", SECCOMP),
    no_way_to_escalate,
    *WINDOWS_AND_ARMOR,
)


def one_process_space(spec: JsonObject, path: str) -> list[FieldError]:
    """Processes are shared among containers, or with the host."""
    if not spec.get("shareProcessNamespace") or not spec.get("hostPID"):
        return []
    at, why = "securityContext.shareProcessNamespace", "ShareProcessNamespace and HostPID cannot "
    return [fields.invalid_value(f"{path}.{at}", True, f"{why}both be enabled")]  # noqa: FBT003


def sysctls(spec: JsonObject, path: str) -> list[FieldError]:
    """Settings of the kernel are known by good names, each once, and are not those of the host."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, setting in enumerate((spec.get("securityContext") or {}).get("sysctls") or ()):
        at, name = f"{path}.securityContext.sysctls[{index}].name", setting.get("name") or ""
        if not name:
            errors.append(fields.required(at))
        elif len(name) > LONGEST_SYSCTL or not SYSCTL_NAME.fullmatch(name):
            why = f"must have at most {LONGEST_SYSCTL} characters and match regex ^{SYSCTL}$"
            errors.append(fields.invalid_value(at, name, why))
        elif name in seen:
            errors.append(fields.duplicate(at, name))
        seen.add(name)
        errors += _of_host(name, spec, at)
    return errors


def _of_host(name: str, spec: JsonObject, path: str) -> list[FieldError]:
    """Return whether a kernel setting would be that of the host."""
    separator = next((letter for letter in name if letter in "./"), ".")
    dotted = name.replace("/", ".") if separator == "/" else name
    dotted = dotted.partition("*")[0]
    shared = dotted in SHARED_MEMORY or dotted.startswith("fs.mqueue.")
    for part, meant in (("hostNetwork", dotted.startswith("net.")), ("hostIPC", shared)):
        if spec.get(part) and meant:
            why = f"may not be specified when '{part}' is true"
            return [fields.invalid_value(path, name, why)]
    return []


IDENTITIES: Final = Ruleset(
    "core.validatePodSpecSecurityContext",
    field("fsGroup", NUMBER),
    field("runAsUser", NUMBER),
    field("runAsGroup", NUMBER),
    items("supplementalGroups", NUMBER),
)
SETTINGS: Final = Ruleset(
    "core.validatePodSpecSecurityContext",
    field("fsGroupChangePolicy", one_of("Always", "OnRootMismatch")),
    field("seccompProfile", SECCOMP),
    *WINDOWS_AND_ARMOR,
    field("supplementalGroupsPolicy", one_of("Merge", "Strict")),
    # MountOption: as where the gate SELinuxMount is off.
    field("seLinuxChangePolicy", one_of("Recursive")),
)
OF_POD: Final = (
    filled("securityContext", IDENTITIES),
    where("shareProcessNamespace", one_process_space),
    where("securityContext", sysctls),
    filled("securityContext", SETTINGS),
)


def _in_go(context: JsonObject) -> dict[str, Any]:
    """Return a security context as upstream shows it: a structure of Go with all its fields."""
    parts = (
        "capabilities", "privileged", "seLinuxOptions", "windowsOptions", "runAsUser",
        "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation",
        "procMount", "seccompProfile", "appArmorProfile",
    )  # fmt: skip
    return {_go_name(part): _named_in_go(context.get(part), part) for part in parts}


def _named_in_go(value: Any, part: str) -> Any:
    if not isinstance(value, dict):
        return value
    names = {
        "capabilities": ("add", "drop"),
        "seLinuxOptions": ("user", "role", "type", "level"),
        "windowsOptions": (
            "gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess"
        ),
        "seccompProfile": ("type", "localhostProfile"),
        "appArmorProfile": ("type", "localhostProfile"),
    }[part]  # fmt: skip
    absent = "" if part == "seLinuxOptions" else None
    return {_go_name(name): value.get(name, absent) for name in names}


def _go_name(name: str) -> str:
    special = {"seLinuxOptions": "SELinuxOptions"}
    if name.startswith("gmsa"):
        return "GMSA" + name[4:]
    return special.get(name) or name[0].upper() + name[1:]

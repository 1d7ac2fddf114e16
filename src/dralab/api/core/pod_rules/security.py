"""Security contexts: users, groups, profiles, kernel settings."""

import re
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.pod_rules import windows
from dralab.api.core.pod_rules.parts import MOST_SECONDS, option
from dralab.api.core.volume_sources import descending_errors
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject

RANGE: Final = f"must be between 0 and {MOST_SECONDS}, inclusive"
PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
LONGEST_PROFILE: Final = 4095
PROC_MOUNTS: Final = ("Default", "Unmasked")
GROUP_POLICIES: Final = ("Merge", "Strict")
GROUP_CHANGES: Final = ("Always", "OnRootMismatch")
SELINUX_CHANGES: Final = ("Recursive",)  # MountOption: as where the gate SELinuxMount is off
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


def of_container(context: JsonObject, path: str, *, host_users: bool) -> list[FieldError]:
    """Return what is wrong with the security context of a container."""
    errors = _ids(context, ("runAsUser", "runAsGroup"), path)
    if (mount := context.get("procMount")) is not None:
        errors += option(context, "procMount", PROC_MOUNTS, path)
        if host_users and mount == "Unmasked":
            why = "`hostUsers` must be false to use `Unmasked`"
            errors.append(fields.invalid_value(f"{path}.procMount", mount, why))
    errors += _seccomp(context, path)
    if context.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and "
        if context.get("privileged"):
            shown = _in_go(context)
            errors.append(fields.invalid_value(path, shown, f"{why}`privileged` to true"))
        for capability in (context.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                shown = _in_go(context)
                whole = f"{why}`capabilities.Add` CAP_SYS_ADMIN"
                errors.append(fields.invalid_value(path, shown, whole))
    return errors + _windows_and_armor(context, path)


def of_pod(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the security context of a pod."""
    context = spec.get("securityContext")
    if not context and not spec.get("shareProcessNamespace"):
        return []
    context, at = context or {}, f"{path}.securityContext"
    errors = _ids(context, ("fsGroup", "runAsUser", "runAsGroup"), at)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        errors += _id(group, f"{at}.supplementalGroups[{index}]")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(fields.invalid_value(f"{at}.shareProcessNamespace", True, why))  # noqa: FBT003
    errors += _sysctls(context, spec, f"{at}.sysctls")
    errors += option(context, "fsGroupChangePolicy", GROUP_CHANGES, at)
    errors += _seccomp(context, at)
    errors += _windows_and_armor(context, at)
    errors += option(context, "supplementalGroupsPolicy", GROUP_POLICIES, at)
    return errors + option(context, "seLinuxChangePolicy", SELINUX_CHANGES, at)


def _windows_and_armor(context: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if (given := context.get("windowsOptions")) is not None:
        errors += windows.options(given, f"{path}.windowsOptions")
    if (profile := context.get("appArmorProfile")) is not None:
        errors += _app_armor(profile, f"{path}.appArmorProfile")
    return errors


def _ids(context: JsonObject, parts: tuple[str, ...], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for part in parts:
        if (number := context.get(part)) is not None:
            errors += _id(number, f"{path}.{part}")
    return errors


def _id(number: int, path: str) -> list[FieldError]:
    return [] if 0 <= number <= MOST_SECONDS else [fields.invalid_value(path, number, RANGE)]


def _seccomp(context: JsonObject, path: str) -> list[FieldError]:
    profile = context.get("seccompProfile")
    if profile is None:
        return []
    path = f"{path}.seccompProfile"
    errors, at = _profile_type(profile, path, "seccompProfile"), f"{path}.localhostProfile"
    file = profile.get("localhostProfile")
    if profile.get("type") == "Localhost":
        if file is None:
            why = "must be set when seccomp type is Localhost"
            return [*errors, fields.required(at, why)]
        return errors + descending_errors(file, at)
    if file is not None:
        shown = {"Type": profile.get("type") or "", "LocalhostProfile": file}
        why = "can only be set when seccomp type is Localhost"
        errors.append(fields.invalid_value(at, shown, why))
    return errors


def _profile_type(profile: JsonObject, path: str, name: str) -> list[FieldError]:
    kind = profile.get("type") or ""
    if kind in PROFILES:
        return []
    if not kind:
        return [fields.required(f"{path}.type", f"type is required when {name} is set")]
    return [fields.not_supported(f"{path}.type", kind, PROFILES)]


def _app_armor(profile: JsonObject, path: str) -> list[FieldError]:
    kind, file = profile.get("type") or "", profile.get("localhostProfile")
    at, errors = f"{path}.localhostProfile", []
    if kind not in PROFILES:
        return _profile_type(profile, path, "appArmorProfile")
    if kind != "Localhost":
        why = "can only be set when AppArmor type is Localhost"
        return [] if file is None else [fields.invalid_value(at, file, why)]
    if file is None or (not file and file == file.strip()):
        return [fields.required(at, "must be set when AppArmor type is Localhost")]
    if file != file.strip():
        errors.append(fields.invalid_value(at, file, "must not be padded with whitespace"))
    if len(file.encode()) > LONGEST_PROFILE:
        errors.append(fields.too_long(at, LONGEST_PROFILE))
    return errors


def _sysctls(context: JsonObject, spec: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, setting in enumerate(context.get("sysctls") or ()):
        at, name = f"{path}[{index}].name", setting.get("name") or ""
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

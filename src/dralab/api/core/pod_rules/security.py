"""Security contexts: users, groups, profiles, kernel settings."""

import re
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.pod_rules.windows import WINDOWS_OPTIONS
from dralab.api.core.volume_sources import descending_errors
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
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


RULES: Final = RuleTables(globals(), WINDOWS_OPTIONS)
SECURITY_CONTEXT: Final = RULES["ValidateSecurityContext"]
OF_POD: Final = RULES["validatePodSpecSecurityContext"]
MORE_OF_POD: Final = RULES["validatePodSpecSecurityContext/more"]


def _users_for_unmasked(mount: str, path: str, around: Surroundings) -> list[FieldError]:
    if mount != "Unmasked" or not around.host_users:
        return []
    return [fields.invalid_value(path, mount, "`hostUsers` must be false to use `Unmasked`")]


def _no_way_to_escalate(context: JsonObject, path: str) -> list[FieldError]:
    if context.get("allowPrivilegeEscalation") is not False:
        return []
    added = (context.get("capabilities") or {}).get("add") or ()
    whys = ["`privileged` to true"] if context.get("privileged") else []
    whys += ["`capabilities.Add` CAP_SYS_ADMIN" for each in added if each == "CAP_SYS_ADMIN"]
    first = "cannot set `allowPrivilegeEscalation` to false and "
    return [fields.invalid_value(path, _in_go(context), first + why) for why in whys]


def _file_of_seccomp(profile: JsonObject, path: str) -> list[FieldError]:
    file = profile.get("localhostProfile")
    if file is None or profile.get("type") != "Localhost":
        return []
    return descending_errors(file, f"{path}.localhostProfile")


def _profile_in_go(profile: JsonObject) -> JsonObject:
    return {
        "Type": profile.get("type") or "", "LocalhostProfile": profile.get("localhostProfile")
    }  # fmt: skip


def _file_of_app_armor(profile: JsonObject, path: str) -> list[FieldError]:
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
    if len(file.encode()) > LONGEST_PROFILE:
        errors.append(fields.too_long(at, LONGEST_PROFILE))
    return errors


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

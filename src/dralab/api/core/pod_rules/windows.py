"""Fields that only Windows pods may set, and those they may not; the system of a pod."""

import re
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.parts import NOTHING, WINDOWS, containers_of
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.values.json_types import JsonObject

SYSTEMS: Final = ("linux", WINDOWS)
LONGEST_DOMAIN: Final = 256
LONGEST_USER: Final = 104
# Patterns are compiled with their first use: few pods are for Windows.
CONTROL: Final = r"[\x00-\x1f\x7f]"
NETBIOS: Final = r"""[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}"""
DNS_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
DNS: Final = rf"{DNS_LABEL}(?:\.{DNS_LABEL})*"
NOT_IN_USERS: Final = r"""["/\\:;|=,+*?<>@\[\]]"""
ONLY_DOTS: Final = r"[. ]+"
# What a pod, and a container, for Windows may not set: the field, and where it is shown.
OF_POD: Final = (
    "appArmorProfile", "seLinuxOptions", "^hostUsers", "^hostPID", "^hostIPC", "seccompProfile",
    "fsGroup", "fsGroupChangePolicy", "sysctls", "^shareProcessNamespace", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
OF_CONTAINER: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities",
    "readOnlyRootFilesystem", "privileged", "allowPrivilegeEscalation", "procMount", "runAsUser",
    "runAsGroup",
)  # fmt: skip
FALSE_IS_UNSET: Final = ("hostPID", "hostIPC")


WINDOWS_OPTIONS: Final = RuleTables(globals())["validateWindowsSecurityContextOptions"]


def user_problems(name: str) -> list[str]:
    """Return the problems of a user, with a domain and a backslash before it or without."""
    return [f"runAsUserName{why}" for why in _user(name)]


def _user(name: str) -> list[str]:
    if not name:
        return [" cannot be an empty string"]
    if re.search(CONTROL, name):
        return [" cannot contain control characters"]
    if name.count("\\") > 1:
        return [" cannot contain more than one backslash"]
    domain, backslash, user = name.rpartition("\\")
    problems = []
    if len(domain) >= LONGEST_DOMAIN:
        problems.append(f"'s Domain length must be under {LONGEST_DOMAIN} characters")
    if backslash and not re.fullmatch(NETBIOS, domain) and not re.fullmatch(DNS, domain):
        problems.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        problems.append("'s User cannot be empty")
    elif len(user) > LONGEST_USER:
        problems.append(f"'s User length must not be longer than {LONGEST_USER} characters")
    if re.fullmatch(ONLY_DOTS, user):
        problems.append("'s User cannot contain only periods or spaces")
    if re.search(NOT_IN_USERS, user):
        shown = '"/\\:;|=,+*?<>@[]'
        problems.append(f"'s User cannot contain the following characters: {shown}")
    return problems


def _host_process(context: JsonObject | None) -> bool | None:
    found: bool | None = ((context or NOTHING).get("windowsOptions") or NOTHING).get("hostProcess")
    return found


def host_processes(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of containers that are processes of a Windows host."""
    errors, all_of_them, hosted = [], 0, 0
    mine = _host_process(spec.get("securityContext"))
    for container, at in containers_of(spec, path):
        all_of_them += 1
        its = _host_process(container.get("securityContext"))
        if mine is not None and its is not None and mine != its:
            why = (
                "pod hostProcess value must be identical if both are specified, was "
                f"{str(mine).lower()}"
            )
            where = f"{at}.securityContext.windowsOptions.hostProcess"
            errors.append(fields.invalid_value(where, its, why))
        hosted += bool(mine if its is None else its)
    if not hosted:
        return errors
    if hosted != all_of_them:
        why = (
            "If pod contains any hostProcess containers then all containers must be HostProcess "
            "containers"
        )
        errors.append(fields.invalid_value(path, "", why))
    if not spec.get("hostNetwork"):
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.append(fields.invalid_value(f"{path}.hostNetwork", False, why))  # noqa: FBT003
    return errors


def system(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of the system that a pod is for, and what does not go with it."""
    name = (spec.get("os") or NOTHING).get("name") or ""
    if spec.get("os") is None:
        return []
    if not name:
        return [fields.required(f"{path}.os.name")]
    if name not in SYSTEMS:
        return [fields.not_supported(f"{path}.os", name, SYSTEMS)]
    context = spec.get("securityContext") or NOTHING
    contexts = [
        (each.get("securityContext") or NOTHING, f"{at}.securityContext")
        for each, at in containers_of(spec, path)
    ]
    if name == "linux":
        why = "windows options cannot be set for a linux pod"
        return [
            fields.forbidden(f"{at}.windowsOptions", why)
            for each, at in [(context, f"{path}.securityContext"), *contexts]
            if each.get("windowsOptions") is not None
        ]
    why = "cannot be set for a windows pod"
    return [fields.forbidden(at, why) for at in _unix_fields(spec, context, path)] + [
        fields.forbidden(f"{at}.{part}", why)
        for each, at in contexts
        for part in OF_CONTAINER
        if each.get(part) is not None
    ]


def _unix_fields(spec: JsonObject, context: JsonObject, path: str) -> list[str]:
    found = []
    for part in OF_POD:
        name = part.removeprefix("^")
        holder, at = (spec, path) if name != part else (context, f"{path}.securityContext")
        value = holder.get(name)
        if value is None or (name in FALSE_IS_UNSET and not value) or value == []:
            continue
        found.append(f"{at}.{name}")
    return found

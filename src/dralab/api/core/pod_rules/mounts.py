"""How a container uses the volumes of its pod: as directories, or as block devices."""

from collections.abc import Collection, Mapping
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.volume_sources import descending_errors, step_back_errors
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject

PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")
BLOCKS: Final = (
    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
)


def mounts(container: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """Return the errors of the volumes of a container."""
    folders, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    if not folders and not devices:
        return []
    paths = {each.get("name") or "": each.get("devicePath") or "" for each in devices}
    errors = _folders(container, around.volumes, paths, f"{path}.volumeMounts")
    paths = {each.get("name") or "": each.get("mountPath") or "" for each in folders}
    return errors + _devices(devices, around.volumes, paths, f"{path}.volumeDevices")


def _folders(
    container: JsonObject,
    volumes: Mapping[str, JsonObject],
    devices: Mapping[str, str],
    path: str,
) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    places = frozenset(devices.values())
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{path}[{index}]"
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
        if name not in volumes:
            errors.append(fields.not_found(f"{at}.name", name))
        if not target:
            errors.append(fields.required(f"{at}.mountPath"))
        if target in seen:
            errors.append(fields.invalid_value(f"{at}.mountPath", target, "must be unique"))
        seen.add(target)
        errors += _taken(name, devices, at, "volumeDevices")
        errors += _same_place(target, places, f"{at}.mountPath", "volumeDevices")
        # Upstream names the list and not its item from here on.
        errors += _below(mount, at, path)
        errors += _propagation(mount, container, path)
    return errors


def _below(mount: JsonObject, at: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    plain, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if plain:
        errors += descending_errors(plain, f"{path}.subPath")
    if expression:
        if plain:
            why = "subPathExpr and subPath are mutually exclusive"
            errors.append(fields.invalid_value(f"{at}.subPathExpr", expression, why))
        errors += descending_errors(expression, f"{path}.subPathExpr")
    return errors


def _propagation(mount: JsonObject, container: JsonObject, path: str) -> list[FieldError]:
    errors, spreads = [], mount.get("mountPropagation")
    if spreads is not None:
        at = f"{path}.mountPropagation"
        if spreads not in PROPAGATIONS:
            errors.append(fields.not_supported(at, spreads, PROPAGATIONS))
        privileged = (container.get("securityContext") or {}).get("privileged")
        if spreads == "Bidirectional" and not privileged:
            why = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(fields.forbidden(at, why))
    recursive, at = mount.get("recursiveReadOnly"), f"{path}.recursiveReadOnly"
    if recursive is None or recursive == "Disabled":
        return errors
    if recursive not in RECURSIVE:
        return [*errors, fields.not_supported(at, recursive, RECURSIVE)]
    if not mount.get("readOnly"):
        errors.append(fields.forbidden(at, "may only be specified when readOnly is true"))
    if spreads not in {None, "None"}:
        why = "may only be specified when mountPropagation is None or not specified"
        errors.append(fields.forbidden(at, why))
    return errors


def _devices(
    devices: Collection[JsonObject],
    volumes: Mapping[str, JsonObject],
    folders: Mapping[str, str],
    path: str,
) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    targets: set[str] = set()
    places = frozenset(folders.values())
    for index, device in enumerate(devices):
        at = f"{path}[{index}]"
        name, target = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
        if name in seen:
            errors.append(fields.invalid_value(f"{at}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errors.append(fields.not_found(f"{at}.name", name))
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            errors.append(fields.invalid_value(f"{at}.name", name, BLOCKS))
        if not target:
            errors.append(fields.required(f"{at}.devicePath"))
        if target in targets:
            errors.append(fields.invalid_value(f"{at}.devicePath", target, "must be unique"))
        if target and step_back_errors(target, path):
            why = "can not contain backsteps ('..')"
            errors.append(fields.invalid_value(f"{at}.devicePath", target, why))
        else:
            targets.add(target)
        errors += _taken(name, folders, at, "volumeMounts")
        errors += _same_place(target, places, f"{at}.devicePath", "volumeMounts")
        seen |= {name} - {""}
    return errors


def _taken(name: str, others: Mapping[str, str], path: str, where: str) -> list[FieldError]:
    """Return whether a volume is used in the other mode, too."""
    if name not in others:
        return []
    return [fields.invalid_value(f"{path}.name", name, f"must not already exist in {where}")]


def _same_place(target: str, places: frozenset[str], path: str, where: str) -> list[FieldError]:
    if target not in places:
        return []
    why = f"must not already exist as a path in {where}"
    return [fields.invalid_value(path, target, why)]

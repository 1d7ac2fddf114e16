"""The CDI directories of a runtime, and the container edits of their specs."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Protocol

from dralab.contracts.cdi import CdiError, CdiSpec, ContainerEdits, check, qualified, read, write
from dralab.files import reading
from dralab.values.records import dataclass

# Drivers write a few kilobytes for each claim.
LARGEST_FILE: Final = 4 * 1024 * 1024
MOST_ERRORS: Final = 3


class CdiDirectory(Protocol):
    """Where specs lie, by file name."""

    def write(self, name: str, spec: CdiSpec) -> None:
        """Write a spec atomically."""
        ...

    def remove(self, name: str) -> None:
        """Remove a spec, if it exists."""
        ...

    def texts(self) -> Mapping[str, str]:
        """Return the files' texts, by path."""
        ...

    def entries(self) -> Mapping[str, str | CdiSpec | CdiError]:
        """Return the files by path, as texts, specs or errors."""
        ...


class MemoryDirectory:
    """A directory of a simulated node: thousands of them fit in one process."""

    def __init__(self, path: str = "/var/run/cdi") -> None:
        self.path = path
        # Never written as text: at thousands of nodes YAML would take half of the time.
        self._specs: dict[str, CdiSpec] = {}

    def write(self, name: str, spec: CdiSpec) -> None:
        """Put a spec there."""
        check(spec)
        self._specs[f"{self.path}/{name}"] = spec

    def remove(self, name: str) -> None:
        """Remove a spec, if it exists."""
        self._specs.pop(f"{self.path}/{name}", None)

    def clear(self) -> None:
        """Lose everything, as a reboot does."""
        self._specs.clear()

    def texts(self) -> Mapping[str, str]:
        """Return the files' texts, by path."""
        return {path: write(spec) for path, spec in self._specs.items()}

    def entries(self) -> Mapping[str, str | CdiSpec]:
        """Return the specs, by path."""
        return self._specs


class FileDirectory:
    """A directory of this machine; it is made when the first spec is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, spec: CdiSpec) -> None:
        """Write a spec: first to a temporary file, which is then renamed."""
        text = write(spec)
        self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix="spec.", suffix=".tmp", dir=self.path)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(aside).chmod(0o644)
        Path(aside).replace(self.path / name)

    def remove(self, name: str) -> None:
        """Remove a spec, if it exists."""
        (self.path / name).unlink(missing_ok=True)

    def texts(self) -> Mapping[str, str]:
        """Return the texts of `*.json` and `*.yaml`, by path; not of directories below."""
        return {path: text for path, text in self.entries().items() if isinstance(text, str)}

    def entries(self) -> Mapping[str, str | CdiError]:
        """Return the files' texts, by path, or why a file cannot be read."""
        try:
            paths = sorted(self.path.iterdir())
        except FileNotFoundError:
            return {}
        except OSError as error:
            return {str(self.path): CdiError(f"cannot be read: {error.strerror or error}")}
        return {
            str(path): text
            for path in paths
            if path.suffix in {".json", ".yaml"} and (text := _text(path)) is not None
        }


def _text(path: Path) -> str | CdiError | None:
    """Return a file's text or an error; None if it vanished or is not a file."""
    try:
        if not path.is_file():
            return None
        data = reading.read(path, LARGEST_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        return CdiError(f"cannot be read: {error.strerror or error}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return CdiError(f"invalid spec, not UTF-8: {error}")


@dataclass(slots=True)
class ContainerConfig:
    """What a container is started with, before and after the edits."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: list[Mapping[str, Any]] = field(default_factory=list)
    device_nodes: list[Mapping[str, Any]] = field(default_factory=list)
    hooks: list[Mapping[str, Any]] = field(default_factory=list)
    additional_gids: list[int] = field(default_factory=list)
    net_devices: list[Mapping[str, Any]] = field(default_factory=list)
    intel_rdt: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _IndexedDevice:
    path: str
    spec: CdiSpec
    edits: ContainerEdits
    priority: int


class CdiCache:
    """The merged contents of all directories; the last directory wins."""

    def __init__(self, directories: Sequence[CdiDirectory]) -> None:
        self.directories = directories
        self.errors: dict[str, str] = {}
        self._devices: dict[str, _IndexedDevice] = {}
        self._read: dict[str, tuple[str | CdiSpec | CdiError, CdiSpec | CdiError]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the directories again; invalid files are recorded in `errors` and ignored."""
        self.errors, self._devices = {}, {}
        conflicts: dict[str, list[str]] = {}
        seen = {}
        for priority, directory in enumerate(self.directories):
            for path, text in directory.entries().items():
                spec = self._parsed(path, text)
                seen[path] = (text, spec)
                if isinstance(spec, CdiError):
                    self.errors[path] = str(spec)
                    continue
                for device in spec.devices:
                    name = qualified(spec.kind, device.name)
                    held = self._devices.get(name)
                    if held is not None and held.priority == priority:
                        conflicts.setdefault(name, [held.path]).append(path)
                        continue
                    conflicts.pop(name, None)
                    self._devices[name] = _IndexedDevice(path, spec, device.edits, priority)
        for name, paths in conflicts.items():
            del self._devices[name]
            text = ", ".join(f'"{path}"' for path in paths)
            for path in paths:
                self.errors[path] = f'conflicting device "{name}" (specs {text})'
        self._read = seen

    def _parsed(self, path: str, text: str | CdiSpec | CdiError) -> CdiSpec | CdiError:
        if not isinstance(text, str):
            return text
        held = self._read.get(path)
        if held is not None and held[0] == text:
            return held[1]
        try:
            return read(text)
        except CdiError as error:
            return error

    @property
    def devices(self) -> list[str]:
        """The ids of all usable devices, sorted."""
        return sorted(self._devices)

    def inject(self, config: ContainerConfig, ids: Sequence[str]) -> None:
        """Apply the edits of ids to a container, in order; CdiError: nothing was changed."""
        self.refresh()
        missing = [name for name in ids if name not in self._devices]
        if missing:
            raise CdiError(f"unresolvable CDI devices {', '.join(missing)}{self._rejected()}")
        touched = set()
        for name in ids:
            found = self._devices[name]
            if found.path not in touched:
                touched.add(found.path)
                apply(config, found.spec.edits)
            apply(config, found.edits)

    def _rejected(self) -> str:
        """Return the ignored files, which may have the missing devices."""
        found = [f"{path}: {text}" for path, text in sorted(self.errors.items())]
        more = f"; and {len(found) - MOST_ERRORS} more" if len(found) > MOST_ERRORS else ""
        return f" (rejected: {'; '.join(found[:MOST_ERRORS])}{more})" if found else ""


def apply(config: ContainerConfig, edits: ContainerEdits) -> None:
    """Change a container by one set of edits."""
    for entry in edits.env:
        name, _, value = entry.partition("=")
        config.env[name] = value
    for node in edits.device_nodes:
        _replace(config.device_nodes, node, "path")
    for mount in edits.mounts:
        _replace(config.mounts, mount, "containerPath")
    if edits.mounts:
        config.mounts.sort(key=lambda mount: _depth(mount["containerPath"]))
    config.hooks += edits.hooks
    config.net_devices += edits.net_devices
    for gid in edits.additional_gids:
        if gid and gid not in config.additional_gids:
            config.additional_gids.append(gid)
    if edits.intel_rdt is not None:
        config.intel_rdt = edits.intel_rdt


def _replace(entries: list[Mapping[str, Any]], new: Mapping[str, Any], key: str) -> None:
    entries[:] = [entry for entry in entries if entry[key] != new[key]]
    entries.append(new)


def _depth(path: str) -> int:
    return len([part for part in path.split("/") if part])

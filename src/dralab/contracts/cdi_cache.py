"""The directories of CDI files that a runtime looks into, and what they do to a container."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dralab.contracts.cdi import CdiError, CdiSpec, ContainerEdits, check, qualified, read, write


class CdiDirectory(Protocol):
    """Where specs lie, by file name."""

    def write(self, name: str, spec: CdiSpec) -> None:
        """Put a spec there, whole or not at all."""
        ...

    def remove(self, name: str) -> None:
        """Take a spec away; a missing one is fine."""
        ...

    def texts(self) -> Mapping[str, str]:
        """Return the files' texts, by path."""
        ...

    def entries(self) -> Mapping[str, str | CdiSpec]:
        """Return the files by path: their texts, or what a text would be read as."""
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
        """Take a spec away; a missing one is fine."""
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
        """Put a spec there: written aside, then moved."""
        text = write(spec)
        self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix="spec.", suffix=".tmp", dir=self.path)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(aside).chmod(0o644)
        Path(aside).replace(self.path / name)

    def remove(self, name: str) -> None:
        """Take a spec away; a missing one is fine."""
        (self.path / name).unlink(missing_ok=True)

    def texts(self) -> Mapping[str, str]:
        """Return the texts of `*.json` and `*.yaml`, by path; not of directories below."""
        if not self.path.is_dir():
            return {}
        return {
            str(path): path.read_text(encoding="utf-8")
            for path in sorted(self.path.iterdir())
            if path.suffix in {".json", ".yaml"} and path.is_file()
        }

    def entries(self) -> Mapping[str, str | CdiSpec]:
        """Return the files' texts, by path."""
        return self.texts()


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
    """What all directories hold together; the last directory wins."""

    def __init__(self, directories: Sequence[CdiDirectory]) -> None:
        self.directories = directories
        self.errors: dict[str, str] = {}
        self._devices: dict[str, _IndexedDevice] = {}
        self._read: dict[str, tuple[str | CdiSpec, CdiSpec | None]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look again: bad files are noted in `errors` and left out whole."""
        self.errors, self._devices = {}, {}
        conflicts: dict[str, list[str]] = {}
        seen = {}
        for priority, directory in enumerate(self.directories):
            for path, text in directory.entries().items():
                spec = self._parsed(path, text)
                seen[path] = (text, spec)
                for device in spec.devices if spec is not None else ():
                    name = qualified(spec.kind, device.name) if spec is not None else ""
                    held = self._devices.get(name)
                    if held is not None and held.priority == priority:
                        conflicts.setdefault(name, [held.path]).append(path)
                        continue
                    if spec is not None:
                        conflicts.pop(name, None)
                        self._devices[name] = _IndexedDevice(path, spec, device.edits, priority)
        for name, paths in conflicts.items():
            del self._devices[name]
            text = ", ".join(f'"{path}"' for path in paths)
            for path in paths:
                self.errors[path] = f'conflicting device "{name}" (specs {text})'
        self._read = seen

    def _parsed(self, path: str, text: str | CdiSpec) -> CdiSpec | None:
        if isinstance(text, CdiSpec):
            return text
        held = self._read.get(path)
        if held is not None and held[0] == text and held[1] is not None:
            return held[1]
        try:
            return read(text)
        except CdiError as error:
            self.errors[path] = str(error)
            return None

    @property
    def devices(self) -> list[str]:
        """The ids of all usable devices, sorted."""
        return sorted(self._devices)

    def inject(self, config: ContainerConfig, ids: Sequence[str]) -> None:
        """Change a container as ids say, in their order; CdiError: nothing was changed."""
        self.refresh()
        missing = [name for name in ids if name not in self._devices]
        if missing:
            raise CdiError(f"unresolvable CDI devices {', '.join(missing)}")
        touched = set()
        for name in ids:
            found = self._devices[name]
            if found.path not in touched:
                touched.add(found.path)
                apply(config, found.spec.edits)
            apply(config, found.edits)


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

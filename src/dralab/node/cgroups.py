"""Resource limits of containers: control groups of the kernel, version 1 or 2.

Each container of the process runtime has a group below this server's own, where the machine lets
it have one. Servers remove those of servers that were killed. What is not managed here, such as
devices, stays the machine's. Sources: kubelet 1.36 (`pkg/kubelet/cm/helpers_linux.go`) and runc
(`ConvertCPUSharesToCgroupV2Value`).
"""

import contextlib
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dralab.node.orphan_guard import BETWEEN, TRIES, removed
from dralab.objects.requests import base_units
from dralab.values.json_types import JsonObject

MACHINE: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "dralab-"
CONTROLLERS: Final = ("cpu", "memory")
LEAST_SHARES: Final = 2
MOST_SHARES: Final = 262144
SHARES_PER_CPU: Final = 1024
PERIOD: Final = 100_000  # microseconds
LEAST_QUOTA: Final = 1_000


def cpu_shares(resources: JsonObject) -> int:
    """Return the weight of a container beside others: its request, or else its limit.

    >>> cpu_shares({"requests": {"cpu": "500m"}}), cpu_shares({})
    (512, 2)
    """
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    milli = base_units("cpu", requests.get("cpu") or 0) or base_units("cpu", limits.get("cpu") or 0)
    return min(max(milli * SHARES_PER_CPU // 1000, LEAST_SHARES), MOST_SHARES)


def cpu_quota(resources: JsonObject) -> int | None:
    """Return how many microseconds of each period a container may use; None without a limit.

    >>> cpu_quota({"limits": {"cpu": "1500m"}}), cpu_quota({"limits": {"cpu": "1m"}})
    (150000, 1000)
    """
    milli = base_units("cpu", (resources.get("limits") or {}).get("cpu") or 0)
    return max(milli * PERIOD // 1000, LEAST_QUOTA) if milli else None


def memory_limit(resources: JsonObject) -> int | None:
    """Return the most bytes that a container may use; None without a limit."""
    amount = (resources.get("limits") or {}).get("memory")
    return base_units("memory", amount) or None if amount is not None else None


def weight_of(shares: int) -> int:
    """Return version 2's weight of version 1's shares.

    >>> weight_of(2), weight_of(1024), weight_of(262144)
    (1, 100, 10000)
    """
    if shares <= LEAST_SHARES:
        return 1
    if shares >= MOST_SHARES:
        return 10_000
    power = math.log2(shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def settings_of(resources: JsonObject, *, unified: bool) -> dict[str, dict[str, str]]:
    """Return the settings of a container's resources: controller, file, text.

    A memory limit comes last: it is the one that can be refused.
    """
    quota, memory = cpu_quota(resources), memory_limit(resources)
    if unified:
        return {
            "cpu": {
                "cpu.weight": str(weight_of(cpu_shares(resources))),
                "cpu.max": f"{quota or 'max'} {PERIOD}",
            },
            "memory": {"memory.max": str(memory or "max")},
        }
    return {
        "cpu": {
            "cpu.shares": str(cpu_shares(resources)),
            "cpu.cfs_period_us": str(PERIOD),
            "cpu.cfs_quota_us": str(quota or -1),
        },
        "memory": {"memory.limit_in_bytes": str(memory or -1)},
    }


class ContainerGroup:
    """The group of one container: a directory for each controller, or one for all."""

    def __init__(self, directories: Mapping[str, Path], machine: Path, *, unified: bool) -> None:
        self.directories = dict(directories)
        self._machine = machine
        self._unified = unified

    def apply(self, resources: JsonObject) -> str:
        """Apply a container's resources; return "" or what the kernel refused."""
        for controller, files in settings_of(resources, unified=self._unified).items():
            directory = self.directories[controller]
            for name, text in files.items():
                try:
                    (directory / name).write_text(text)
                except OSError as error:
                    limit, used = memory_limit(resources), self._used()
                    if controller == "memory" and limit is not None and limit < used:
                        return f"memory limit ({limit}) below current usage ({used})"
                    return f"{name}: {error.strerror}"
        return ""

    def launcher_settings(self) -> dict[str, Any]:
        """Return the settings for the launcher of mount namespaces."""
        return {
            "join": [str(each / "cgroup.procs") for each in dict.fromkeys(self._all())],
            "show": self._shown(),
            "at": str(self._machine),
        }

    def was_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process for lack of memory."""
        name = "memory.events" if self._unified else "memory.oom_control"
        try:
            lines = (self.directories["memory"] / name).read_text().splitlines()
        except OSError:
            return False
        counts = dict(line.split(" ", 1) for line in lines if " " in line)
        return counts.get("oom_kill", "0") != "0"

    def remove(self) -> None:
        """Kill what is left in the group, and remove it."""
        for _ in range(TRIES):
            if all(list(map(removed, dict.fromkeys(self._all())))):
                return
            threading.Event().wait(BETWEEN)

    def _all(self) -> list[Path]:
        return list(self.directories.values())

    def _shown(self) -> list[list[str]]:
        """Return the mounts below the container's `/sys/fs/cgroup`."""
        if self._unified:
            return [[str(self.directories["cpu"]), ""]]
        shown = {name: str(path) for name, path in self.directories.items()}
        for each in sorted(self._machine.iterdir()):
            if (each / "tasks").exists() and each.name not in shown:
                shown[each.name] = str(each)
        return [[path, name] for name, path in shown.items()]

    def _used(self) -> int:
        name = "memory.current" if self._unified else "memory.usage_in_bytes"
        try:
            return int((self.directories["memory"] / name).read_text())
        except (OSError, ValueError):
            return 0


class ControlGroups:
    """The groups of this server's containers; `found` says whether they are supported."""

    def __init__(self, parents: Mapping[str, Path], machine: Path, *, unified: bool) -> None:
        self._parents = dict(parents)
        self._machine = machine
        self._unified = unified
        self._number = 0

    @classmethod
    def found(cls, machine: Path = MACHINE) -> "ControlGroups | None":
        """Make this server's own group, and remove those of servers that are gone.

        None: the machine has no such groups, or lets only root make some.
        """
        unified = (machine / "cgroup.controllers").exists()
        roots = {name: machine if unified else machine / name for name in CONTROLLERS}
        parents = {name: root / f"{PREFIX}{_identity(os.getpid())}" for name, root in roots.items()}
        try:
            for name, parent in parents.items():
                sweep(parent.parent)
                if unified:
                    (parent.parent / "cgroup.subtree_control").write_text(f"+{name}")
                parent.mkdir(exist_ok=True)
                if unified:
                    (parent / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError:
            for parent in parents.values():
                with contextlib.suppress(OSError):
                    parent.rmdir()
            return None
        return cls(parents, machine, unified=unified)

    def create(self, pod_uid: str, container: str) -> ContainerGroup:
        """Make the group of a container. OSError."""
        self._number += 1
        name = f"pod{pod_uid}-{container}-{self._number}"
        made = {controller: parent / name for controller, parent in self._parents.items()}
        for directory in made.values():
            directory.mkdir(exist_ok=True)
        return ContainerGroup(made, self._machine, unified=self._unified)

    @property
    def directories(self) -> list[Path]:
        """The server's own groups, one for each hierarchy."""
        return list(dict.fromkeys(self._parents.values()))

    def close(self) -> None:
        """Remove the server's own group; those of containers are gone by then."""
        for parent in self.directories:
            with contextlib.suppress(OSError):
                parent.rmdir()


def sweep(root: Path) -> None:
    """Remove the groups of servers that were killed, with the processes that are left in them."""
    for each in root.glob(f"{PREFIX}*"):
        number, _, known = each.name.removeprefix(PREFIX).partition("-")
        # Of another PID namespace nothing is known here: its server may well live.
        is_ours = number.isdigit() and known.partition("-")[0] == _namespace()
        if is_ours and _identity(int(number)) != f"{number}-{known}":
            for _ in range(TRIES):
                if removed(each):
                    break
                threading.Event().wait(BETWEEN)


def _identity(pid: int) -> str:
    """Return an identity that is unique while this machine runs; empty if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{pid}-{_namespace()}-{fields[19]}"  # field 22 is when it started


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)

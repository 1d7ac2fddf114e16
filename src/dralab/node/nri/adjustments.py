"""Applies the adjustments of NRI plugins to a container, as far as possible.

Environment, mounts, devices, CDI devices, arguments and the set of CPUs are handed to the runtime;
the rest (memory, shares, cgroups, hooks of the OCI runtime) needs cgroups and is told only.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.contracts.cdi_cache import ContainerConfig
from dralab.node.containers import ContainerStart
from dralab.node.nri.plugins import NriError

REMOVED: Final = "-"  # before a key: the entry is taken away


def adjusted(
    start: ContainerStart,
    adjustments: Sequence[tuple[str, Any]],
    inject: Callable[[ContainerConfig, Sequence[str]], None],
) -> tuple[ContainerStart, list[str]]:
    """Return an adjusted container, and a sentence on each plugin's adjustments.

    `adjustments` are messages by plugin, `inject` applies CDI devices. NriError: two plugins want
    different things of the same entry.
    """
    found, told = start, []
    owners: dict[tuple[str, str], str] = {}

    def own(plugin: str, kind: str, key: str) -> None:
        other = owners.setdefault((kind, key), plugin)
        if other != plugin:
            raise NriError(f'NRI plugins "{plugin}" and "{other}" both tried to set {kind} {key}')

    for plugin, wanted in adjustments:
        done = [
            *_environment(plugin, wanted, found.config, own),
            *_mounts(plugin, wanted, found.config, own),
            *_devices(plugin, wanted, found.config, own),
        ]
        if names := [each.name for each in wanted.CDI_devices]:
            inject(found.config, names)
            done.append(f"CDI devices {', '.join(names)}")
        if wanted.args:
            own(plugin, "args", "")
            found = replace(found, argv=[word for word in wanted.args if word])
            done.append("its arguments")
        if cpus := wanted.linux.resources.cpu.cpus:
            own(plugin, "cpuset", "cpus")
            found = replace(found, cpus=cpus)
        done += resources_of(wanted.linux.resources)
        done += [f"annotation {key}" for key in sorted(wanted.annotations)]
        if wanted.HasField("hooks"):
            done.append("hooks (not run)")
        if done:
            told.append(f"NRI plugin {plugin} set {'; '.join(done)}")
    return found, told


def resources_of(resources: Any) -> list[str]:
    """Return what resources are asked for, as words."""
    cpu, found = resources.cpu, []
    if cpu.cpus:
        found.append(f"cpuset {cpu.cpus}")
    if cpu.mems:
        found.append(f"memory nodes {cpu.mems} (not applied)")
    if cpu.HasField("shares"):
        found.append(f"CPU shares {cpu.shares.value} (not applied)")
    if cpu.HasField("quota"):
        found.append(f"CPU quota {cpu.quota.value} (not applied)")
    if resources.memory.HasField("limit"):
        found.append(f"memory limit {resources.memory.limit.value} (not applied)")
    found += [f"cgroup {key}={value} (not applied)" for key, value in resources.unified.items()]
    return found


_Own = Callable[[str, str, str], None]


def _environment(plugin: str, wanted: Any, config: ContainerConfig, own: _Own) -> list[str]:
    done = []
    for entry in wanted.env:
        key = entry.key.removeprefix(REMOVED)
        own(plugin, "env", key)
        if entry.key.startswith(REMOVED):
            config.env.pop(key, None)
            done.append(f"no variable {key}")
        else:
            config.env[key] = entry.value
            done.append(f"variable {key}")
    return done


def _mounts(plugin: str, wanted: Any, config: ContainerConfig, own: _Own) -> list[str]:
    done = []
    for mount in wanted.mounts:
        path = mount.destination.removeprefix(REMOVED)
        own(plugin, "mount", path)
        config.mounts[:] = [each for each in config.mounts if each["containerPath"] != path]
        if mount.destination.startswith(REMOVED):
            done.append(f"no mount at {path}")
            continue
        config.mounts.append(
            {
                "containerPath": path,
                "hostPath": mount.source,
                # Where nothing is the source, such as of a tmpfs, it is an empty directory.
                "volume": f"nri{path.replace('/', '-')}",
                "type": mount.type,
                "options": list(mount.options),
            }
        )
        done.append(f"a mount of {mount.source} at {path}")
    return done


def _devices(plugin: str, wanted: Any, config: ContainerConfig, own: _Own) -> list[str]:
    done = []
    for device in wanted.linux.devices:
        path = device.path.removeprefix(REMOVED)
        own(plugin, "device", path)
        config.device_nodes[:] = [each for each in config.device_nodes if each["path"] != path]
        if device.path.startswith(REMOVED):
            done.append(f"no device {path}")
            continue
        numbers = {"type": device.type, "major": device.major, "minor": device.minor}
        config.device_nodes.append({"path": path, **numbers})
        done.append(f"device {path}")
    return done

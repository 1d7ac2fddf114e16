"""The mount namespaces of containers.

The paths of a node, such as `/var/lib/kubelet`, are those of this node of dralab: several nodes on
one machine have a directory each. `mount_launcher` makes the namespace.
"""

import os
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.files.reading import make_within, real_within
from dralab.node.containers import ContainerStart, ContainerStartError
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

SPEC: Final = "mounts.json"
NOT_STARTED: Final = "not-started"  # beside it, by the launcher
LAUNCHER: Final = Path(__file__).with_name("mount_launcher.py")
KUBELET_ROOT: Final = "/var/lib/kubelet"
CDI_ROOTS: Final = ("/var/run/cdi", "/run/cdi")
STATIC_CDI_ROOT: Final = "/etc/cdi"
NRI_ROOTS: Final = ("/var/run/nri", "/run/nri")


@dataclass(frozen=True, slots=True)
class NodePaths:
    """The places of a node's well-known directories on this machine, the longest path first.

    What this machine has not got, and a container of the node was given, is below `others`.
    """

    known: Sequence[tuple[str, str]] = ()
    others: Path | None = None

    @classmethod
    def of(cls, root: Path, cdi: Path, nri: Path | None = None) -> "NodePaths":
        """Return the paths of a node with its root, directory of CDI files and NRI socket.

        `/etc/cdi` is a directory of its own, as on a machine: its files outlive a reboot.
        """
        known = [(KUBELET_ROOT, str(root.absolute()))]
        known += [(STATIC_CDI_ROOT, str(static_cdi_of(root).absolute()))]
        known += [(path, str(cdi.absolute())) for path in CDI_ROOTS]
        known += [(path, str((nri or root / "nri").absolute())) for path in NRI_ROOTS]
        return cls(sorted(known, key=lambda pair: -len(pair[0])), root.absolute() / "host-paths")

    def here(self, path: str) -> str:
        """Return the place of a node's path on this machine.

        >>> NodePaths((("/var/lib/kubelet", "/tmp/n1"),)).here("/var/lib/kubelet/plugins/x")
        '/tmp/n1/plugins/x'
        """
        for theirs, ours in self.known:
            if path == theirs or path.startswith(f"{theirs}/"):
                return ours + path[len(theirs) :]
        return path

    def found(self, path: str) -> Path:
        """Return the place of a node's path, existing or not: never on the machine itself.

        Without `others`, what the machine has not got is at the machine's path.
        """
        here = Path(self.here(path))
        if self.others is None or self.is_own(path) or here.exists():
            return here
        return self.others / os.path.normpath(f"/{path}").lstrip("/")

    def is_own(self, path: str) -> bool:
        """Return whether a path of the node has a directory of the node's own."""
        return self.here(path) != path


def static_cdi_of(root: Path) -> Path:
    """Return the place of a node's `/etc/cdi`, below its root."""
    return root / "etc-cdi"


def service_of(url: str) -> dict[str, str]:
    """Return the variables with the server's address, as a kubelet sets them.

    >>> service_of("https://127.0.0.1:6443")
    {'KUBERNETES_SERVICE_HOST': '127.0.0.1', 'KUBERNETES_SERVICE_PORT': '6443'}
    """
    parts = urllib.parse.urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {
        "KUBERNETES_SERVICE_HOST": parts.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(port),
    }


def problem() -> str:
    """Return the reason that rules out mount namespaces on this machine; empty if none."""
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--probe"]
    tried = subprocess.run(  # noqa: S603 - our own file
        command, capture_output=True, text=True, check=False
    )
    return "" if tried.returncode == 0 else tried.stderr.strip()


def spec_of(
    start: ContainerStart, paths: NodePaths, directory: Path, volumes: Mapping[str, Path]
) -> dict[str, Any]:
    """Return the launcher's specification for a container.

    `directory` is its own; `volumes` are the directories of volumes that are not of the machine.
    What a `hostPath` names is made if it is missing: on the node's own paths there, elsewhere as an
    empty directory that only containers of this node have.
    """
    binds = []
    for number, mount in enumerate(start.config.mounts):
        if mount["hostPath"]:
            source = paths.found(mount["hostPath"])
            if not source.exists():
                if paths.others is None and not paths.is_own(mount["hostPath"]):
                    source = directory / f"missing-{number}"
                source.mkdir(parents=True, exist_ok=True)
        else:
            source = volumes[mount["volume"]]
        bind = _bind(source, mount["containerPath"])
        bind["readonly"] = bool(mount.get("readOnly")) or "ro" in (mount.get("options") or ())
        if mount.get("subPath"):
            part = part_of(source, mount["subPath"], start)
            bind |= {"source": str(part), "within": str(source.resolve())}
        binds.append(bind)
    taken = {each["target"] for each in binds}
    if start.message_path:
        message = directory / "termination-log"
        message.touch()
        message.chmod(0o666)  # kubelet: a container may run as any user
        binds.append(_bind(message, start.message_path))
    for path, text in start.etc.items():
        if path not in taken:
            file = directory / Path(path).name
            file.write_text(text)
            file.chmod(0o644)
            binds.append(_bind(file, path))
    root = directory / "root"
    root.mkdir(exist_ok=True)
    return {
        "root": str(root),
        "binds": binds,
        "devices": [_device(each, paths) for each in start.config.device_nodes],
        "cwd": start.working_dir or ("/" if start.privileges.user else str(directory)),
        "hostname": start.hostname,
        "privileges": start.privileges.launcher_settings(),
    }


def part_of(volume: Path, sub_path: str, start: ContainerStart) -> Path:
    """Return a part of a volume without links, made if it is missing. ContainerStartError.

    Containers write into volumes: a link of theirs must not lead to files of the machine.
    """
    part = volume / sub_path
    try:
        if part.exists():
            return real_within(volume, part)
        made = make_within(volume, part)
        made.chmod(made.parent.stat().st_mode & 0o7777)
    except OSError as error:
        raise ContainerStartError(
            f'failed to prepare subPath "{sub_path}" of container "{start.name}": {error.strerror}'
        ) from error
    return made


def _bind(source: Path, target: str) -> dict[str, Any]:
    return {"source": str(source), "target": target, "readonly": False}


def _device(node: JsonObject, paths: NodePaths) -> JsonDict:
    """Return a device node of CDI, with the path of the machine at which it is found."""
    if source := node.get("hostPath"):
        return {**node, "hostPath": str(paths.found(source))}
    return dict(node)


def launching(spec: Path) -> list[str]:
    """Return the command prefix that runs a command in its own mount namespace."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(spec)]


def binding(source: Path, target: Path) -> list[str]:
    """Return the command prefix that bind-mounts a file over another."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), "--bind", str(source), str(target)]


def with_environment(file: Path) -> list[str]:
    """Return the command prefix that sets variables from a file (JSON)."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), "--environment", str(file)]


def joining(pid: int, directory: Path) -> list[str]:
    """Return the command prefix that joins the namespaces of a container's first process.

    `directory` is the container's, with the file that it was launched by.
    """
    spec = str(directory / SPEC)
    return [sys.executable, "-I", "-S", str(LAUNCHER), "--join", str(pid), spec]

"""Starts a command in a mount namespace of its own: a script that imports nothing from dralab.

`mount_launcher.py SPEC COMMAND…` reads a JSON file (see `mount_namespaces.spec_of`), makes a root
that looks like the machine's with the mounts of a container in it, and becomes the command.
`--join PID SPEC COMMAND…` becomes a command in the namespaces of a process, and `--bind SOURCE
TARGET COMMAND…` one that finds a file of the machine at another path. `--environment FILE COMMAND…`
adds variables with names that a shell would drop. `--probe` only tries.
Nothing is made or changed on the machine itself. As root, the container's root is an overlay: what
is written there is in memory, and the container's own. Otherwise, where a mount needs a directory
that is missing, an empty file system takes the place of its parent, with the parent's entries.
"""

import contextlib
import ctypes
import errno
import json
import os
import shutil
import stat
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x10000000
CLONE_NEWCGROUP = 0x02000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
MS_UNBINDABLE, MS_PRIVATE, MNT_DETACH = 1 << 17, 1 << 18, 2
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
# By their numbers (linux/capability.h).
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
NOT_FOUND, REFUSED = 127, 125
MOST_LINKS = 40  # as the kernel follows
# Kinds of file systems that show the kernel's own things; they hold no files.
KERNEL_KINDS = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "proc", "pstore", "securityfs",
    "sysfs", "tracefs",
})  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind, options)]
    _checked(_libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _empty(target: str, machine: str) -> None:
    """Mount an empty file system in the place of a directory of the machine, with its mode.

    Its own mode would be that of /tmp, where the kernel lets nobody open devices and files of
    others to write as a shell does (`fs.protected_regular`).
    """
    mode = stat.S_IMODE(os.stat(machine).st_mode) if os.path.isdir(machine) else 0o755
    _mount("none", target, "tmpfs", 0, f"mode={mode:o}")


def unshare() -> None:
    """Leave the machine's mount and UTS namespaces; without root, by a user namespace."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | (CLONE_NEWUSER if uid else 0)
    _checked(_libc.unshare(flags), "unshare")
    if uid:
        for name, text in (
            ("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1"),
        ):  # fmt: skip
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("", "/", "", MS_REC | MS_PRIVATE)


class Root:
    """A root directory in the making."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.targets: set[str] = set()  # where the container's mounts are
        self.own = {"/"}  # directories of which the entries are ours
        self.filled: list[str] = []  # where entries of the machine are shown
        _empty(path, "/")
        # Otherwise it would appear again below what is mounted into it.
        _mount("", path, "", MS_UNBINDABLE)
        self._fill("/")

    def at(self, path: str) -> str:
        """Return the present path of a path of the new root."""
        return self.path if path == "/" else self.path + path

    def real(self, path: str) -> str:
        """Return a path without links, as the root has them."""
        return os.path.realpath(path).replace("//", "/")

    def inside(self, path: str) -> bool:
        """Whether a path lies in another mount."""
        while path != "/":
            path = os.path.dirname(path)
            if path in self.targets:
                return True
        return False

    def ensure(self, path: str, *, file: bool) -> None:
        """Create the mount point, a directory or file."""
        if os.path.lexists(self.at(path)):
            return
        parent = os.path.dirname(path)
        self.ensure(parent, file=False)
        if not self.inside(path):
            self.make_room(parent)
        if file:
            os.close(os.open(self.at(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            return
        os.mkdir(self.at(path))
        self.own.add(path)

    def make_room(self, path: str) -> None:
        """Make a directory writable here, with the machine's entries in it."""
        if path in self.own:
            return
        self.ensure(path, file=False)
        if path not in self.own:
            _empty(self.at(path), path)
            self._fill(path)
            self.own.add(path)

    def bind(self, source: str, path: str, *, readonly: bool) -> None:
        """Bind-mount a path of the machine."""
        self.ensure(path, file=not os.path.isdir(source))
        _mount(source, self.at(path), "", MS_BIND | MS_REC)
        if readonly:
            try:
                _mount("", self.at(path), "", MS_REMOUNT | MS_BIND | MS_RDONLY)
            except OSError as error:
                _note(f"{path} is not read-only: {error}")

    def close(self) -> None:
        """Make everything read-only except the container's own mounts."""
        for path in sorted(self.filled):
            if path[len(self.path) :] in self.targets:
                continue  # a mount of the container lies over it
            try:
                _mount("", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY)
            except OSError as error:
                _note(f"{path} is not read-only: {error}")
        _mount("", self.path, "", MS_REMOUNT | MS_BIND | MS_RDONLY)

    def show_groups(self, groups: "dict[str, Any]", *, readonly: bool) -> None:
        """Show a container's own control groups in the place of the machine's."""
        place = self.at(groups["at"])
        _libc.umount2(place.encode(), MNT_DETACH)  # with all that lies in it
        shown = groups["show"]
        if [name for _, name in shown] != [""]:
            _empty(place, groups["at"])
        for source, name in shown:
            path = os.path.join(groups["at"], name).rstrip("/")
            if name:
                os.mkdir(self.at(path))
            _mount(source, self.at(path), "", MS_BIND)
            if readonly:
                _mount("", self.at(path), "", MS_REMOUNT | MS_BIND | MS_RDONLY)

    def device(self, entry: "dict[str, Any]") -> None:
        """Create a device node: the machine's, or one with the given numbers."""
        path = self.real(entry["path"])
        source = entry.get("hostPath") or entry["path"]
        if os.path.exists(source):
            self.bind(source, path, readonly=False)
            return
        kinds = {"c": stat.S_IFCHR, "u": stat.S_IFCHR, "b": stat.S_IFBLK, "p": stat.S_IFIFO}
        kind = kinds.get(entry.get("type") or "")
        if kind is None:
            _note(f"device {path} is missing on this machine")
            return
        try:
            self.make_room(os.path.dirname(path))
            numbers = os.makedev(int(entry.get("major") or 0), int(entry.get("minor") or 0))
            os.mknod(self.at(path), kind | 0o666, numbers)
        except OSError as error:
            _note(f"device {path} cannot be made: {error.strerror}")

    def _fill(self, path: str) -> None:
        for name in sorted(os.listdir(path)):
            source = os.path.join(path, name)
            target = os.path.join(self.at(path), name)
            try:
                if os.path.islink(source):
                    os.symlink(os.readlink(source), target)
                    continue
                if os.path.isdir(source):
                    os.mkdir(target)
                else:
                    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
                _mount(source, target, "", MS_BIND | MS_REC)
                self.filled.append(target)
            except OSError as error:
                _note(f"{source} is left out: {error}")


class PrivateRoot(Root):
    """A root with the machine's files; changes are private to the container.

    It is kept in memory, and goes with the container. The files of an image, if there is a
    directory with them, lie over the machine's. This needs root and overlays.
    """

    def __init__(self, path: str, image: str) -> None:
        self.path = path
        self.image = image
        self.targets: set[str] = set()
        self.own: set[str] = set()
        self.filled: list[str] = []
        self.kernel: list[str] = []  # mounts of the machine that are shown as they are
        mounts = _mounts()
        self._overlay("/")
        # As above: not again below what is mounted into it.
        _mount("", path, "", MS_UNBINDABLE)
        for place, kind in mounts:
            if place == "/" or kind == "nsfs" or _is_below(place, [*self.kernel, path]):
                continue
            try:
                if kind not in KERNEL_KINDS and os.path.isdir(place):
                    self._overlay(place)
                    continue
            except OSError:
                pass  # not a kind of file system that can be the lower one
            with contextlib.suppress(OSError):  # it may lie in another one
                _mount(place, self.at(place), "", MS_BIND | MS_REC)
                self.kernel.append(place)

    def real(self, path: str) -> str:
        """Return a path without links, as the root has them."""
        if not self.image:
            return super().real(path)
        found, left, links = "/", path.split("/")[::-1], 0
        while left:
            name = left.pop()
            if name == "..":
                found = os.path.dirname(found)
            elif name not in ("", "."):
                here = os.path.join(found, name)
                if os.path.islink(self.at(here)) and links < MOST_LINKS:
                    links += 1
                    target = os.readlink(self.at(here))
                    left += target.split("/")[::-1]
                    found = "/" if target.startswith("/") else found
                else:
                    found = here
        return found

    def make_room(self, path: str) -> None:
        """Make a directory writable here: all are, except the kernel's file systems."""
        if _is_below(path, self.kernel):
            super().make_room(path)

    def _overlay(self, path: str) -> None:
        here = self.at(path)
        _mount("none", here, "tmpfs", 0)
        try:
            for name in ("new", "work"):
                os.mkdir(f"{here}/{name}")
            shutil.copystat(path, f"{here}/new")
            work = f"upperdir={here}/new,workdir={here}/work"
            if self.image and path == "/":
                self._lay_image(here, work)
            else:
                _mount("overlay", here, "overlay", 0, f"lowerdir={path},{work}")
        except OSError:
            _checked(_libc.umount2(here.encode(), MNT_DETACH), f"umount {here}")
            raise
        self.filled.append(here)

    def _lay_image(self, here: str, work: str) -> None:
        """Lay the files of an image over the machine's root.

        A layer can't lie in another one of its overlay, as the image's directory mostly does: then
        the machine's root is shown by an overlay of its own. Kernels stack no more than two, which
        is too few where the machine is itself a container; there, a volume can hold the files.
        """
        image = _escaped(self.image)
        with contextlib.suppress(OSError):
            _mount("overlay", here, "overlay", 0, f"lowerdir={image}:/,{work}")
            return
        for name in ("none", "machine"):
            os.mkdir(f"{here}/{name}")
        machine = f"{here}/machine"
        try:
            _mount("overlay", machine, "overlay", 0, f"lowerdir={here}/none:/")
            _mount("overlay", here, "overlay", 0, f"lowerdir={image}:{machine},{work}")
        except OSError as error:
            text = f"the files of the image, {self.image}, cannot be laid over this machine's"
            raise OSError(error.errno, f"{text}: {error}") from error


def _mounts() -> "list[tuple[str, str]]":
    """Return the machine's mount points and their types, parents first."""
    found: dict[str, str] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            place = before.split()[4].encode("utf-8", "surrogateescape")
            text = place.decode("unicode_escape").encode("latin-1")
            found[os.fsdecode(text)] = after.split()[0]
    return sorted(found.items(), key=lambda pair: pair[0].count("/"))


def _is_below(path: str, parents: "list[str]") -> bool:
    """Whether a path is one of these directories, or in one."""
    return any(path == each or path.startswith(f"{each}/") for each in parents)


def _escaped(path: str) -> str:
    """Return a path as the options of an overlay spell it."""
    return "".join(f"\\{each}" if each in "\\:," else each for each in path)


def root_of(path: str, image: str) -> Root:
    """Return a root: a private one for each container, if possible.

    OSError: the files of an image cannot be shown.
    """
    if os.getuid() == 0:
        try:
            return PrivateRoot(path, image)
        except OSError:
            if image:
                raise
    return Root(path)  # a kernel without overlays


def pinned(bind: "dict[str, Any]") -> str:
    """Return the source of a mount, opened so that it cannot be exchanged any more.

    It was looked at before: since then no part of the way may have become a link.
    """
    if "within" not in bind:
        return str(bind["source"])
    handle = os.open(bind["within"], os.O_PATH | os.O_DIRECTORY)
    for part in os.path.relpath(bind["source"], bind["within"]).split("/"):
        handle = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=handle)
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            raise OSError(errno.ELOOP, f"{bind['source']} has become a link")
    return f"/proc/self/fd/{handle}"


def enter(spec: "dict[str, Any]") -> None:
    """Create and enter the namespace of a container."""
    unshare()
    root = root_of(spec["root"], spec.get("image") or "")
    binds = [
        {**each, "target": root.real(each["target"]), "source": pinned(each)}
        for each in spec["binds"]
    ]
    binds.sort(key=lambda each: each["target"].count("/"))
    # Its parents are mounted too: their directories are created there.
    root.targets = {each["target"] for each in binds}
    for each in binds:
        if not root.inside(each["target"]):
            root.ensure(each["target"], file=not os.path.isdir(each["source"]))
    for each in binds:
        root.bind(each["source"], each["target"], readonly=each.get("readonly", False))
    for each in spec["devices"]:
        root.device(each)
    groups = spec.get("groups")
    if groups:
        privileged = spec["privileges"]["capabilities"] is None
        root.show_groups(groups, readonly=not privileged)
    if spec.get("hostname"):
        name = spec["hostname"].encode()
        _checked(_libc.sethostname(name, len(name)), "sethostname")
    if spec["privileges"]["readOnlyRoot"]:
        root.close()
    os.chroot(spec["root"])
    _go_to(spec["cwd"])


def become(privileges: "dict[str, Any]") -> None:
    """Change to a container's user, groups and capabilities; needs root."""
    left = privileges["capabilities"]
    if left is not None and "ALL" not in left:
        for number, name in enumerate(CAPABILITIES):
            if name not in left:
                # Refused for one that this kernel does not have.
                _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    if privileges["user"] is not None or privileges["group"] is not None or privileges["groups"]:
        os.setgroups(privileges["groups"])
        if privileges["group"] is not None:
            os.setgid(privileges["group"])
        if privileges["user"] is not None:
            os.setuid(privileges["user"])
    if not privileges["escalates"]:
        _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def doors(spec: "dict[str, Any]") -> "list[int]":
    """Open the control groups of a container, by the machine's paths."""
    paths = (spec.get("groups") or {}).get("join") or ()
    return [os.open(path, os.O_WRONLY) for path in paths]


def go_into_groups(files: "list[int]", *, own: bool) -> None:
    """Enter control groups; `own`: with a cgroup namespace that begins there."""
    for file in files:
        os.write(file, b"0")  # this process
        os.close(file)
    if files and own:
        _checked(_libc.unshare(CLONE_NEWCGROUP), "unshare")


def bind_over(source: str, target: str) -> None:
    """Show a file at the path of another, in a mount namespace of this process."""
    unshare()
    _mount(source, target, "", MS_BIND)


def join(pid: int, cwd: str, *, groups: bool) -> None:
    """Enter the namespaces of a process; `groups`: that of its control groups, too."""
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    spaces = ["user", "mnt", "uts"] if os.getuid() else ["mnt", "uts"]
    spaces += ["cgroup"] if groups else []
    files = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in spaces]
    for file in files:
        _checked(_libc.setns(file, 0), "setns")
    os.fchdir(root)
    os.chroot(".")
    _go_to(cwd)


def _go_to(path: str) -> None:
    for each in (path, "/"):
        try:
            os.chdir(each)
        except OSError:
            continue
        return


def _note(text: str) -> None:
    print(f"mount namespace: {text}", file=sys.stderr, flush=True)


def _environment() -> "dict[bytes, bytes]":
    """Return the initial environment of this process: Python changes it (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def _read(path: str) -> "dict[str, Any]":
    with open(path, encoding="utf-8") as file:
        spec: dict[str, Any] = json.load(file)
    return spec


def main(words: "list[str]") -> int:
    """Run the command of the arguments; return only on an error."""
    root, privileges, failure = os.getuid() == 0, None, None
    try:
        environment = _environment()
        if words[0] == "--probe":
            unshare()
            return 0
        if words[0] == "--bind":
            bind_over(words[1], words[2])
            command = words[3:]
        elif words[0] == "--environment":
            added = _read(words[1])
            environment |= {name.encode(): value.encode() for name, value in added.items()}
            command = words[2:]
        elif words[0] == "--join":
            spec = _read(words[2])
            files = doors(spec)
            join(int(words[1]), spec["cwd"], groups=bool(files))
            go_into_groups(files, own=False)
            command, privileges = words[3:], spec["privileges"]
        else:
            spec = _read(words[0])
            files = doors(spec)
            # As this user, and on the machine: neither may be so any more when it is needed.
            beside = os.path.join(os.path.dirname(words[0]), "not-started")
            failure = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            enter(spec)
            go_into_groups(files, own=True)
            command, privileges = words[1:], spec["privileges"]
        if root and privileges is not None:
            become(privileges)
    except OSError as error:
        _note(str(error))
        return REFUSED
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - what this script is for
    except OSError as error:
        why = f'exec: "{command[0]}": {_words(command[0], error)}'
        _note(why)
        if failure is not None:
            os.write(failure, why.encode(errors="replace"))
    return NOT_FOUND


def _words(program: str, error: OSError) -> str:
    """Return runc's error message for a program that cannot be started."""
    if not isinstance(error, FileNotFoundError):
        return (error.strerror or str(error)).lower()
    if "/" in program:
        return f"stat {program}: no such file or directory"
    return "executable file not found in $PATH"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

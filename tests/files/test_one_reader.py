"""Files are read by `dralab.files`, and by nothing else.

A file that a user or a program may have prepared can be a pipe, a device, a link or endless. What
is listed here reads something else, each with its reason.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "dralab"
READERS = {"read_text", "read_bytes"}
OPENERS = {("gzip", "open"), ("io", "open"), ("tarfile", "open"), ("np", "load"), ("click", "File")}
# What lies in the package, and what the kernel tells of processes and of the machine.
OURS = (
    "files(",
    "DATA",
    "here",
    "MANIFEST",
    "os.devnull",
    "Path('/proc",
    "Path(f'/proc",
    "'/proc",
    "f'/proc",
)
# A file or a folder → why what it reads needs no guard, or has its own.
ALLOWED = {
    "files/": "the reader itself",
    "apiserver/http/request_metrics.py": "what the kernel tells of this process",
    "apiserver/storage/files.py": "opened to be synced, after `check_files`",
    "drivercheck/targets.py": "what the kernel tells of a driver's process",
    "node/atomic_files.py": "its own file, which it has just looked at without following a link",
    "node/cgroups.py": "what the kernel tells of a control group",
    "node/listening_ports.py": "what the kernel tells of sockets and processes",
    "node/mount_launcher.py": "a program of its own, which imports nothing; the node wrote the file",
    "node/network/namespaces.py": "a namespace, which is no regular file",
    "node/orphan_guard.py": "a program of its own, which reads what the kernel tells of processes",
    "simulation/engines/external/schedulers.py": "what the kernel tells of the schedulers' threads",
    "virtualtime/": "what the kernel tells of the traced processes, and the files of the host's libc",
}


def is_writing(call, at):
    """Whether a call opens a file for writing only: `at` is where its mode stands."""
    mode = next((word.value for word in call.keywords if word.arg == "mode"), None)
    mode = mode or (call.args[at] if len(call.args) > at else None)
    return isinstance(mode, ast.Constant) and str(mode.value)[:1] in {"w", "a", "x"}


def reads(call):
    """Return what a call reads, as it is written, or None."""
    function = call.func
    if isinstance(function, ast.Name):
        if function.id == "open" and call.args and not is_writing(call, 1):
            return ast.unparse(call.args[0])
        return None
    if not isinstance(function, ast.Attribute):
        return None
    owner = ast.unparse(function.value)
    if (owner, function.attr) in OPENERS or (owner, function.attr) == ("os", "open"):
        flags = ast.unparse(call.args[1]) if len(call.args) > 1 else ""
        is_other = any(flag in flags for flag in ("O_WRONLY", "O_DIRECTORY", "O_CREAT"))
        return None if is_other or not call.args else ast.unparse(call.args[0])
    if function.attr in READERS:
        return owner
    mode = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if function.attr == "open" and isinstance(mode, str) and mode in {"r", "rb", "rt"}:
        return owner
    return None


def places():
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (what := reads(node)) is not None:
                yield name, node.lineno, what


def test_files_are_read_in_one_way():
    found = list(places())
    assert len(found) > 30
    others = [
        f"{name}:{line}: {what}"
        for name, line, what in found
        if not what.startswith(OURS) and not name.startswith(tuple(ALLOWED))
    ]
    assert not others, "read files with dralab.files.reading, or say in ALLOWED why not"


def test_no_file_is_read_as_code():
    """Pickles and their like run what their author wants."""
    formats = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    imported = {
        (str(path.relative_to(ROOT)), name)
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None), *(each.name for each in node.names)]
        if name is not None
    }
    assert len(imported) > 1000
    assert not [each for each in imported if each[1].partition(".")[0] in formats]


def test_what_is_allowed_is_needed():
    read = {name for name, _, what in places() if not what.startswith(OURS)}
    assert not [each for each in ALLOWED if not any(name.startswith(each) for name in read)]

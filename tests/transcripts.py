"""Transcripts: what one types at a shell, and what one sees.

A transcript is a text of files and commands:

    # A comment.
    file web.yaml
    | kind: Pod
    $ kubectl apply -f web.yaml
    pod/web created
    [exit 0 is not written; any other is]

Times, ages, UIDs, versions of objects and addresses are replaced by words before comparing, and
the width of columns and blank lines do not count. `python -m transcripts FILE ...` (in tests/) writes anew what
is seen, for someone to read line by line before it is believed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT = 150
WORDS = [
    (r"\x1b\[[0-9;]*m", ""),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+\d+", "TIME"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+\d+", "TIME"),
    (r"http://127\.0\.0\.1:\d+", "SERVER"),
    (r"resourceVersion: \"\d+\"", 'resourceVersion: "N"'),
    (r"Resource Version: +\d+", "Resource Version:  N"),
    (r"\b10\.0\.0\.\d+", "ADDRESS"),
    (r"(LIVE|MERGED)-\d+", r"\1-N"),
    (r"/tmp/[^/ ]*/(?=LIVE|MERGED)|/tmp/(?=LIVE|MERGED)", "TMP/"),  # noqa: S108 - seen, not used
    (r"(?<![\w.:/-])\d+[smh](\d+s)?(?= |$|\))", "AGE"),
    (r"controller-uid=\S+", "controller-uid=UID"),
    (r"(?<=kubectl-edit-)\d+", "N"),
    # Words that came and went between 1.29 and 1.36.
    (r" (deleted) from \S+ namespace$", r" \1"),
    (r"^Flag --\S+ has been deprecated, .*\n", ""),
    (r"^  Kube-Proxy Version:.*\n", ""),
    (r"^([WE])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", r"\1 "),
    (r"(?<=Address\":\"127\.0\.0\.1:)\d+", "PORT"),
    (r" {2,}", "  "),
]


@dataclass
class Step:
    """A command, or a file to be written, with what is expected of it."""

    command: str = ""
    file: str = ""
    lines: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


def steps_of(text: str) -> list[Step]:
    """Return the steps of a transcript."""
    steps: list[Step] = []
    comments: list[str] = []
    for line in text.splitlines():
        if line.startswith("# ") or line == "#":
            comments.append(line)
        elif line.startswith("$ "):
            steps.append(Step(command=line[2:], comments=comments))
            comments = []
        elif line.startswith("file "):
            steps.append(Step(file=line[5:], comments=comments))
            comments = []
        elif steps:
            steps[-1].lines.append(line)
    for step in steps:
        while step.lines and not step.lines[-1]:
            step.lines.pop()
    return steps


def written(steps: list[Step]) -> str:
    """Return the text of a transcript."""
    parts = []
    for step in steps:
        head = f"$ {step.command}" if step.command else f"file {step.file}"
        parts.append("\n".join([*step.comments, head, *step.lines]))
    return "\n\n".join(parts) + "\n"


def normal(text: str) -> list[str]:
    """Return output with words for what differs from run to run."""
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    # Blank lines come and go with the versions of kubectl, and the eye does not count them.
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def seen(step: Step, folder: Path, environment: dict[str, str]) -> list[str]:
    """Do a step in a folder; return what one sees of a command."""
    if step.file:
        (folder / step.file).write_text(
            "".join(line[2:] + "\n" for line in step.lines if line.startswith("|"))
        )
        return step.lines
    words = shlex.split(step.command)
    source = None
    if "<" in words:
        at = words.index("<")
        source = (folder / words[at + 1]).read_bytes()
        del words[at : at + 2]
    own = dict(environment)
    while "=" in words[0] and words[0].split("=")[0].isupper():
        name, _, value = words.pop(0).partition("=")
        own[name] = value
    words[0] = environment.get(f"COMMAND_{words[0].upper()}", words[0])
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=own,
            input=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"[still running after {TIMEOUT} s]"]
    lines = normal(done.stdout.decode(errors="replace"))
    return [*lines, f"[exit {done.returncode}]"] if done.returncode else lines


def kubectls() -> list[Path]:
    """Return the kubectl binaries of this machine, one per version, newest first.

    `DRALAB_KUBECTL` names them (separated by colons). A kubectl on the PATH may be a wrapper that
    chooses a version by itself; the binaries beside it (`kubectl.1.33`) are used then.
    """
    named = os.environ.get("DRALAB_KUBECTL")
    if named:
        return [Path(item) for item in named.split(":") if Path(item).exists()]
    found = shutil.which("kubectl")
    if found is None:
        return []
    real = Path(found).resolve()
    beside = [path for path in real.parent.glob("kubectl.1.*") if os.access(path, os.X_OK)]
    beside.sort(key=lambda path: int(path.name.rsplit(".", 1)[1]), reverse=True)
    return beside or [real]


def environment_for(kubectl: Path, kubeconfig: Path, folder: Path) -> dict[str, str]:
    """Return the environment in which a kubectl talks to a cluster and to nothing else."""
    return {
        "COMMAND_KUBECTL": str(kubectl),
        "KUBECONFIG": str(kubeconfig),
        "KUBECACHEDIR": str(folder / ".cache"),
        "HOME": str(folder),
        "PATH": os.environ.get("PATH", ""),
        "TZ": "UTC",
        "LC_ALL": "C",
    }


def main(names: list[str]) -> None:
    """Run transcripts against fresh clusters, and write what is seen into them."""
    import tempfile

    from dralab.cluster import Cluster

    kubectl = kubectls()[0]
    for name in names:
        path = Path(name)
        steps = steps_of(path.read_text())
        with Cluster() as cluster, tempfile.TemporaryDirectory() as place:
            environment = environment_for(kubectl, cluster.kubeconfig, Path(place))
            for step in steps:
                step.lines = seen(step, Path(place), environment)
        path.write_text(written(steps))
        sys.stderr.write(f"{path}: {len(steps)} steps with {kubectl.name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

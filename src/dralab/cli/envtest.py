"""`dralab envtest`: stand-ins for the programs that controller-runtime's envtest starts."""

import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Final

import click

from dralab.api.releases import DEFAULT, versions
from dralab.cli._components import RELEASE, release_of
from dralab.cli._options import FOLDER, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.cli.main import LazyGroup
from dralab.files.reading import read

# As Go and setup-envtest name this machine.
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
# envtest looks for flags in --help; these answer it at once.
HELP: Final = """case " $* " in *" --help "*) echo {text}; exit 0;; esac
"""
KUBECTL: Final = """#!/bin/sh
# The kubectl on the PATH: dralab has none of its own.
here=$(cd "$(dirname "$0")" && pwd)
IFS=:
for each in $PATH; do
  if [ "$each" != "$here" ] && [ -x "$each/kubectl" ]; then unset IFS; exec "$each/kubectl" "$@"; fi
done
echo "kubectl is not on the PATH, and dralab has none of its own" >&2
exit 127
"""


@click.group(cls=LazyGroup)
def group() -> None:
    """Run tests that use envtest against dralab, without kube-apiserver and etcd.

    Example: `KUBEBUILDER_ASSETS=$(dralab envtest path) go test ./...`
    """


@group.command()
@options
def path(
    *,
    kubernetes_version: str = RELEASE,
) -> None:
    """Print a folder with stand-ins for kube-apiserver, etcd and kubectl.

    They take the flags that envtest passes, and are of Kubernetes 1.36 by default. The objects are
    gone when the server ends.

    Example: `KUBEBUILDER_ASSETS=$(dralab envtest path) go test ./...`
    """
    echo(str(_written(_default(), release_of(kubernetes_version))))


@group.command()
@options
def use(
    *,
    version: str = arg(default="latest"),
    bin_dir: Path | None = opt(
        "Where to put the folder.  [default: dralab/envtest in your user data directory]", FOLDER
    ),
    form: str = opt(
        "overview: version and path; path: the path alone; env: a line for a shell.",
        ["overview", "path", "env"],
        flags="-p --print",
        default="overview",
    ),
    installed_only: bool = opt("Accepted: nothing is downloaded.", flags="-i --installed-only"),
) -> None:
    """Print the folder as `setup-envtest use` does, and put it where that looks for it.

    VERSION is 1.32 to 1.37, or latest for the default, 1.36. The server is of that release.
    Afterwards `setup-envtest use` with the same version and folder finds it and downloads nothing.

    Example: `KUBEBUILDER_ASSETS=$(dralab envtest use 1.34 -p path) go test ./...`
    """
    del installed_only
    release = _release(version)
    folder = _written(_default() if bin_dir is None else bin_dir.absolute(), release)
    if form == "env":
        echo(f"export KUBEBUILDER_ASSETS={shlex.quote(str(folder))}")
    else:
        shown = "" if form == "path" else f"Version: {versions()[release][1:]}\nPath: "
        echo(f"{shown}{folder}")


def _default() -> Path:
    from dralab.cli.apiserver import default_data

    return default_data().with_name("envtest")


def _release(asked: str) -> str:
    """Return the release that a version names; the default one goes first. UnusableInput."""
    for release in (DEFAULT, *versions()):
        if _covers(asked, versions()[release][1:]):
            return release
    several = ", ".join(served[1:] for served in versions().values())
    raise UnusableInput(f"dralab serves Kubernetes {several}, not {asked}")


def _covers(asked: str, served: str) -> bool:
    """Return whether a version, as setup-envtest takes it, names the one that is served.

    >>> [_covers(each, "1.36.2") for each in ("latest", "1.36", "1.36.x!", "~1.36.1", "1.34")]
    [True, True, True, True, False]
    """
    parts = asked.removesuffix("!").removeprefix("~").removeprefix("v").split(".")
    wanted = [] if asked.rstrip("!") == "latest" else [part for part in parts[:2] if part != "x"]
    return wanted == served.split(".")[: len(wanted)]


def _written(folder: Path, release: str) -> Path:
    """Write the programs of a release where setup-envtest keeps them in a folder; return where."""
    release = release or DEFAULT
    machine = platform.machine().lower()
    version = f"{versions()[release][1:]}-{sys.platform}-{ARCHITECTURES.get(machine, machine)}"
    folder = folder / "k8s" / version
    python = shlex.quote(sys.executable)
    etcd = Path(__file__).with_name("_etcd_of_envtest.py")
    programs = {
        "kube-apiserver": f"#!/bin/sh\n{HELP.format(text='--secure-port')}"
        f'exec {python} -m dralab.cli._kube_apiserver --emulated-version {release} "$@"\n',
        "etcd": f"#!/bin/sh\n{HELP.format(text='--listen-client-urls')}"
        f'exec {python} -I -S {shlex.quote(str(etcd))} "$@"\n',
        "kubectl": KUBECTL,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        target = folder / name
        if target.is_file() and read(target).decode(errors="replace") == text:
            continue  # a test may be starting it
        temporary = folder / f".{name}.{os.getpid()}"
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o755)
        temporary.replace(target)
    return folder

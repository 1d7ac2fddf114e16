"""`kubectl dra`: the questions of dralab as a plugin of kubectl.

kubectl runs any program named `kubectl-dra` as `kubectl dra`. It asks the cluster that kubectl
would, unless an option names another or files; everything else is the command of dralab itself.
"""

from collections.abc import Mapping
from typing import Final

import click

from dralab import __version__
from dralab.cli._inventory import default_kubeconfig
from dralab.cli.main import COMMANDS, ProgramGroup

# What the plugin calls it → the command of dralab; those that exist are offered.
QUESTIONS: Final[Mapping[str, str]] = {
    "why": "explain",
    "top": "top",
    "what-if": "what-if",
    "plan": "plan",
    "snapshot": "snapshot",
}
SOURCES: Final = ("-f", "--filename", "--kubeconfig", "--server", "--code")


class KubectlGroup(ProgramGroup):
    """A group whose commands read kubectl's cluster unless told otherwise."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and add the cluster to its arguments where they name no source."""
        name, command, rest = super().resolve_command(ctx, args)
        wants_help = any(arg in {"-h", "--help"} for arg in rest)
        if not wants_help and not any(_names_source(arg) for arg in rest):
            usual = default_kubeconfig()
            if usual is None:
                raise click.UsageError(
                    "there is no $KUBECONFIG and no ~/.kube/config: name a cluster with "
                    "--kubeconfig or --server, or files with -f"
                )
            rest = [*rest, "--kubeconfig", str(usual)]
        return name, command, rest


def _names_source(arg: str) -> bool:
    """Return whether an argument names what to read, alone or with its value (`-fFILE`, `--x=y`).

    A page about a code reads nothing.
    """
    return arg.partition("=")[0] in SOURCES or (arg.startswith("-f") and not arg.startswith("--"))


@click.group(
    cls=KubectlGroup,
    table={name: COMMANDS[command] for name, command in QUESTIONS.items()},
    modules=QUESTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="kubectl-dra")
def main() -> None:
    """Ask about the devices of a cluster: why a pod waits, who holds what, what would help.

    The cluster is only read, except by plan moves --apply. Exit codes: 0 success, or yes;
    1 failure, or no; 2 bad input or usage.

    Example: `kubectl dra why train -n ml`
    """

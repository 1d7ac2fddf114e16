"""`dralab help`: topics and commands explained; schemas, manual pages, a report of versions."""

from collections.abc import Mapping
from typing import Final

import click

from dralab.cli._output import table_lines
from dralab.cli._terminal import echo
from dralab.cli.main import LazyGroup
from dralab.cli.main import main as dralab

COMMANDS: Final[Mapping[str, str]] = {
    "schema": "Print the JSON schema of a file you write.",
    "man": "Write manual pages of all commands.",
    "report": "Print versions and settings for a bug report.",
}
TOPICS: Final[Mapping[str, tuple[str, str]]] = {
    "input": (
        "Where commands read objects from: files, archives, snapshots, a cluster.",
        """\
-f FILE reads manifests: YAML or JSON, a directory, an archive (.tar, .tar.gz, such as a
must-gather), a file of `dralab snapshot`, or - for standard input. It may be repeated.

--kubeconfig FILE or --server URL reads a cluster. Files beside a cluster count as applied to it.
$KUBECONFIG alone never selects a cluster where files would do: only commands that need a cluster
read it, and `kubectl dra`.

Without --apply, no command changes a cluster.""",
    ),
    "output": (
        "What commands print and write, and their exit codes.",
        """\
Results go to standard output, everything else to standard error. -o FORMAT chooses the form:
table or text for people, json and yaml for programs.

--write PATH writes results to a directory, or to files whose endings say the form: .json,
.xml (JUnit), .md, .svg, .html, .csv. Which of them a command knows, its help says.

Exit codes: 0 success, or yes; 1 failure, or no; 2 bad input or usage.""",
    ),
    "generations": (
        "Generations of the device API, and where --api chooses one.",
        """\
v1         resource.k8s.io, today's Dynamic Resource Allocation
classic    its control-plane controllers of Kubernetes 1.26 to 1.30
k8srm      a prototype: DevicePools, DeviceClaims
evolution  a prototype: ResourcePools
FILE.py    your own, a class derived from OwnGeneration; NAME for one of an installed package

--api says which one a command reads, prints or serves; without it, the input tells. --to says which
one to convert to. `dralab convert`, `dralab compare` and `dralab validate` are about them.""",
    ),
    "words": (
        "Options that several commands have, and what they mean everywhere.",
        "",
    ),
}


class HelpGroup(LazyGroup):
    """A group that also takes a topic, or the words of any command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a word, or the one that explains it."""
        if args[0] in self.table or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return args[0], explained, args

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and the topics."""
        super().format_commands(ctx, formatter)
        with formatter.section("Topics"):
            formatter.write_dl([(name, summary) for name, (summary, _) in TOPICS.items()])


@click.group(
    cls=HelpGroup,
    table=COMMANDS,
    modules={name: f"help {name}" for name in COMMANDS},
    subcommand_metavar="[TOPIC|COMMAND]...",
    invoke_without_command=True,
)
@click.pass_context
def group(context: click.Context) -> None:
    """Explain a topic or a command.

    Examples: `dralab help output`, `dralab help simulate run`
    """
    if context.invoked_subcommand is None:
        echo(context.get_help())


@click.command()
@click.argument("words", nargs=-1)
def explained(words: tuple[str, ...]) -> None:
    """Print a topic, or the help of a command."""
    if len(words) == 1 and words[0] in TOPICS:
        echo(TOPICS[words[0]][1] or vocabulary())
        return
    context = click.Context(dralab, info_name="dralab", **dralab.context_settings)
    command: click.Command = dralab
    for number, word in enumerate(words):
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            topics = f"; topics: {', '.join(TOPICS)}" if number == 0 else ""
            raise click.UsageError(f"no command {' '.join(words[: number + 1])!r}{topics}")
        command, context = found, click.Context(found, info_name=word, parent=context)
    echo(command.get_help(context))


def vocabulary() -> str:
    """Return the options that several commands have, with their meanings."""
    from dralab.cli._words import WORDS

    return "\n".join(table_lines(list(WORDS.items())))

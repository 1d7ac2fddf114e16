"""`dralab`: find the command to run, and report errors in one line.

Commands are imported only when they are run: `dralab up` promises to be ready in 0.3 s.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Final

import click

from dralab import __version__
from dralab.cli.errors import UnusableInput

# Commands and one line for `dralab --help`; each is in the module of its name.
COMMANDS: Final[Mapping[str, str]] = {
    "demo": "Run an example: pods get their devices in seconds.",
    "conformance": "Run conformance cases and compare results.",
    "up": "Serve a cluster on this machine.",
    "apiserver": "Serve only the Kubernetes API.",
    "envtest": "Run tests of controller-runtime's envtest.",
    "scheduler": "Run the scheduler against any cluster.",
    "controllers": "Run the controllers against any cluster.",
    "node": "Run a simulated kubelet against any cluster.",
    "driver": "Run a fake device driver; check any driver.",
    "user": "Give users access to a cluster.",
    "store": "Back up, restore, check or repair a cluster's objects.",
    "incident": "Mend a broken cluster, for practice.",
    "generate": "Print sample nodes and devices as manifests.",
    "simulate": "Run workloads in simulated time.",
    "reproduce": "Run a published experiment again, and compare.",
    "dst": "Test programs against the API under faults from a seed.",
    "allocate": "Place pods: which node and devices each gets.",
    "explain": "Explain why a claim gets no devices, or these.",
    "what-if": "Show who runs, moves and waits after a change.",
    "ui": "Look at a cluster's devices and waiting pods in a browser.",
    "mcp": "Let a language model ask about a cluster (MCP).",
    "top": "List devices by driver and node, and who holds them.",
    "replay": "Replay a recording under another scheduler or fleet.",
    "record": "Record what happens in a cluster, for hours or weeks.",
    "snapshot": "Save the devices, claims and pods of a cluster to a file.",
    "plan": "Plan nodes to add or remove, and moves of pods.",
    "enumerate": "List what could be allocated: device sets, partitions.",
    "compare": "Schedule the same pods in two API generations.",
    "convert": "Translate objects between API generations.",
    "validate": "Check manifests: valid, legacy or invalid.",
    "cel": "Evaluate a CEL expression for one device.",
    "help": "Explain a topic or a command; schemas, man pages, versions.",
}
# What one wants to do, and the commands for it.
SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Begin": ("demo", "up", "incident", "generate"),
    "Ask about devices and pods": (
        "explain", "allocate", "what-if", "plan", "top", "ui", "mcp", "snapshot",
    ),
    "Design a device API": (
        "validate", "convert", "compare", "cel", "enumerate",
    ),
    "Test drivers, operators and clients": (
        "driver", "dst", "envtest", "apiserver", "node", "scheduler", "controllers", "user",
        "conformance",
    ),
    "Simulate": ("simulate", "reproduce", "record", "replay"),
    "Keep, and help": ("store", "help"),
}  # fmt: skip
ALIASES: Final[Mapping[str, str]] = {"gen": "generate"}


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command runs."""

    def __init__(
        self,
        *,
        table: Mapping[str, str] | None = None,
        modules: Mapping[str, str] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        **options: object,
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # click's own keyword arguments
        self.table = table or {}
        # Of commands that are not in the module of their name, below `dralab.cli`.
        self.modules = modules or {}
        self.sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table, then those of the group's own module."""
        return [*self.table, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name in self.table:
            return _imported(self.modules.get(cmd_name, cmd_name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of some arguments; a mistyped one gets a suggestion."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from dralab.values.near_names import did_you_mean

            ctx.fail(
                f"No such command {name!r}{did_you_mean(name, self.list_commands(ctx)) or '.'}"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; report an OSError, such as a full disk, in one line."""
        from dralab.cli._terminal import escape_unconfigured, escaped
        from dralab.kernel.extras import MissingExtraError

        escape_unconfigured()
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly when the reader closes the pipe
        except OSError as error:
            told = error.strerror or str(error)
            where = f"{error.filename}: " if error.filename is not None else ""
            raise click.ClickException(escaped(f"{where}{told}")) from error
        except click.ClickException as error:
            error.message = escaped(error.message)  # type: ignore[misc]  # click shows it next
            raise
        except MissingExtraError as error:
            raise UnusableInput(str(error)) from error
        except click.exceptions.Exit:
            raise
        except Exception as error:
            if told := _own_failure(ctx, error):
                raise UnusableInput(told) from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        own = {name: each.get_short_help_str(80) for name, each in self.commands.items()}
        lines = {**self.table, **own}
        for title, names in (self.sections or {"Commands": list(lines)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, lines[name]) for name in names])


class ProgramGroup(LazyGroup):
    """The commands of a program, which also takes the spellings of earlier versions."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of some arguments, in today's spelling."""
        from dralab.cli._moved import rewritten

        return super().resolve_command(ctx, rewritten(args, ctx.command_path))


def _imported(path: str) -> click.Command:
    """Return the command of a path such as `plan moves`: of the module `plan_moves`."""
    words = path.replace("-", "_").split()
    module = importlib.import_module(f"dralab.cli.{'_'.join(words)}")
    command: click.Command = getattr(module, "group", None) or getattr(module, words[-1])
    return command


def _own_failure(ctx: click.Context, error: Exception) -> str:
    """Return where the user's own generation failed; empty for any other failure."""
    if isinstance(error, click.ClickException) or not ctx.meta.get("dralab.generation"):
        return ""
    from dralab.cli._own_generation import failure

    return failure(error)


@click.group(
    cls=ProgramGroup,
    table=COMMANDS,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dralab")
def main() -> None:
    """A dry lab for Kubernetes devices.

    Exit codes: 0 success, or yes; 1 failure, or no; 2 bad input or usage.

    Example: `dralab up` serves a cluster on 127.0.0.1:55441 and writes a kubeconfig.
    """

"""`dralab`: finds the command and turns what goes wrong into one clear line.

Commands are imported only when they are run: `dralab up` promises to be ready in 0.3 s.
"""

import importlib
from collections.abc import Mapping
from typing import Final

import click

from dralab import __version__

# name → (module:attribute, one line for `dralab --help`), in the order in which help shows them.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("dralab.cli.demo:demo", "See pods get their devices, in a few seconds."),
    "conformance": ("dralab.cli.conformance:group", "Run files of cases with expected answers."),
    "up": ("dralab.cli.up:up", "Serve a cluster on this machine."),
    "apiserver": ("dralab.cli.apiserver:apiserver", "Serve the Kubernetes API alone."),
    "scheduler": ("dralab.cli.scheduler:scheduler", "Schedule the pods of any cluster."),
    "controllers": (
        "dralab.cli.controllers:controllers",
        "Run the controllers of any cluster.",
    ),
    "node": ("dralab.cli.node:node", "Be a node of any cluster."),
    "driver": ("dralab.cli.driver:group", "Run a driver that needs no hardware."),
    "backup": ("dralab.cli.backup:backup", "Copy the objects of a cluster to a file."),
    "restore": ("dralab.cli.restore:restore", "Bring back the objects of a copy."),
    "store": ("dralab.cli.store:group", "Verify or repair the files of a cluster."),
    "generate": ("dralab.cli.generate:generate", "Print sample capacity for any API generation."),
    "batsim": ("dralab.cli.batsim:batsim", "Decide for a real Batsim, over ZeroMQ."),
    "campaign": ("dralab.cli.campaign:campaign", "Run a grid of simulations and compare."),
    "simulate": ("dralab.cli.simulate:simulate", "Run workloads in simulated time."),
    "clock": ("dralab.cli.clock:clock", "Run any program in simulated time."),
    "allocate": ("dralab.cli.allocate:allocate", "Give devices to the claims in files."),
    "explain": ("dralab.cli.explain:explain", "Say why a claim gets no devices, or these."),
    "schedule": ("dralab.cli.schedule:schedule", "Put pods of older API generations on nodes."),
    "allocations": ("dralab.cli.allocations:allocations", "Count or list a pod's device sets."),
    "partitions": ("dralab.cli.partitions:partitions", "List how devices can be cut."),
    "compare": ("dralab.cli.compare:compare", "One scenario in two generations, side by side."),
    "convert": ("dralab.cli.convert:convert", "Translate objects between API generations."),
    "validate": ("dralab.cli.validate:validate", "Tell valid, legacy and invalid documents apart."),
    "cel": ("dralab.cli.cel:cel", "Evaluate one expression for one device."),
}
ALIASES: Final[Mapping[str, str]] = {"gen": "generate"}


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported on use."""

    def __init__(self, *, commands_table: Mapping[str, tuple[str, str]], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # click's own keyword arguments
        self.table = commands_table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; what the machine refuses (a full disk, a closed file) is one line."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly when nobody reads on
        except OSError as error:
            raise click.ClickException(str(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [(name, line) for name, (_, line) in self.table.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    commands_table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dralab")
def main() -> None:
    """A dry lab for Kubernetes devices.

    Exit codes: 0 done, or yes; 1 no, or it failed on the way; 2 what was given cannot be used.

    Example: `dralab up` serves a cluster on 127.0.0.1:55441 and writes a kubeconfig.
    """

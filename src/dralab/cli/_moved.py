"""Spellings of earlier versions: they work until 0.3, with a line that tells the new one.

Arguments are rewritten before a command reads them, so that the commands know one spelling alone.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dralab.cli._terminal import echo

# Commands: old words → new words.
COMMANDS: Final[Mapping[str, str]] = {
    "backup": "store backup",
    "batsim": "simulate batsim-scheduler",
    "campaign": "simulate campaign",
    "allocations": "enumerate allocations",
    "clock run": "simulate program",
    "defragment": "plan moves",
    "dst schema": "help schema dst",
    "man": "help man",
    "partitions": "enumerate partitions",
    "plan": "plan nodes",
    "report": "help report",
    "restore": "store restore",
    "schedule": "allocate",
    "schema": "help schema",
    "simulate batsim": "simulate run",
    "simulate openb": "simulate run",
    "simulate swf": "simulate run",
    "simulate ticks": "simulate run",
}
# Options of old and of new commands: old spelling → new words; without any, the value of the option
# is an argument now.
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "allocate": {"--generation": "--api"},
    "compare": {"--generation": "--api", "--picture": "--write", "--with": "--to"},
    "convert": {"--from": "--api", "--generation": "--api"},
    "conformance allocator": {"--results": "--write"},
    "driver check": {
        "--badge": "--write",
        "--json": "--write",
        "--junit": "--write",
        "--lanes": "--workers",
        "--markdown": "--write",
    },
    "driver new": {"--directory": "--write"},
    "dst replay": {"--html": "--write"},
    "dst run": {
        "--first": "--seed",
        "--jobs": "--workers",
        "--junit": "--write",
        "--out": "--write",
        "-j": "--workers",
    },
    "enumerate allocations": {
        "--budget": "--max-steps",
        "--first": "--limit 1",
        "--generation": "--api",
        "--list": "",
        "--pod": "",
    },
    "enumerate partitions": {"--generation": "--api"},
    "explain": {"--generation": "--api"},
    "schedule": {
        "--claim": "-f",
        "--kubeconfig": "--apply --kubeconfig",
        "--nodes": "-f",
        "--server": "--apply --server",
    },
    "snapshot": {"--output": "", "-o": ""},
    "up": {"--profile": "--api"},
    "user add": {"--output": "--write", "-o": "--write"},
    "validate": {"--generation": "--api", "--repair": "--write"},
    "what-if": {"--without": "--end"},
    "node": {"--status": "--drivers"},
    "plan nodes": {"--budget": "--max-price"},
    "scheduler": {"--name": "--scheduler-name"},
    "simulate batsim-scheduler": {"--socket": "--listen"},
    "simulate campaign": {"--out": "--write"},
    "simulate compare": {"--page": "--write"},
    "simulate run": {
        "--curve": "--write",
        "--events": "",
        "--nodes": "",
        "--out": "--export",
        "--platform": "",
        "--pods": "",
        "--policy": "--scheduler",
        "--report": "--write",
        "--trace": "",
        "--workload": "",
    },
}
HELP: Final = ("-h", "--help")


def rewritten(args: Sequence[str], program: str) -> list[str]:
    """Return the arguments of `program` in today's spelling; on stderr, say what that is."""
    old = _old_command(args)
    new = [*COMMANDS[old].split(), *args[len(old.split()) :]] if old else list(args)
    starts = (" ".join(new[:size]) for size in (1, 2))
    table = {k: v for name in (old, *starts) for k, v in OPTIONS.get(name, {}).items()}
    new = list(_with_new_options(new, table))
    if new != list(args):
        echo(f"this spelling will be removed in 0.3; use: {program} {shlex.join(new)}", err=True)
    return new


def _old_command(args: Sequence[str]) -> str:
    """Return the old command that the arguments begin with; empty for none.

    One that is a group today is the old one where an option of a command follows.
    """
    for old in (" ".join(args[:size]) for size in (2, 1)):
        if old in COMMANDS:
            after = args[len(old.split()) :]
            has_option = bool(after) and after[0].startswith("-") and after[0] not in HELP
            if has_option or not COMMANDS[old].startswith(f"{old} "):
                return old
    return ""


def _with_new_options(args: Sequence[str], table: Mapping[str, str]) -> Iterator[str]:
    end = args.index("--") if "--" in args else len(args)
    for arg in args[:end]:
        # The value may be in the same word: --jobs=2, -j2.
        size = 2 if arg[:2] in table else len(arg.partition("=")[0])
        name, value = arg[:size], arg[size:]
        if name not in table:
            yield arg
            continue
        *first, last = table[name].split() or [""]
        yield from first
        if value and last.startswith("--"):
            yield f"{last}={value.removeprefix('=')}"
        else:
            yield from filter(None, (last, value.removeprefix("=")))
    yield from args[end:]

"""Spellings of earlier versions: they work in 0.3, with a line that tells the new one.

Arguments are rewritten before a command reads them, so that the commands know one spelling alone.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dralab.cli._terminal import echo
from dralab.cli._words import SYNONYMS

# Commands: old words → new words.
COMMANDS: Final[Mapping[str, str]] = {
    "allocations": "enumerate allocations",
    "backup": "store backup",
    "batsim": "simulate batsim-scheduler",
    "campaign": "simulate campaign",
    "clock run": "simulate program",
    "defragment": "plan moves",
    "dst schema": "help schema dst",
    "man": "help man",
    "partitions": "enumerate partitions",
    "plan": "plan nodes",
    "report": "help report",
    "restore": "store restore",
    "schedule": "allocate --pods",
    "schema": "help schema",
    **dict.fromkeys(
        [f"simulate {name}" for name in ("batsim", "openb", "swf", "ticks")], "simulate run"
    ),
}
# Options of old and of new commands, beside SYNONYMS: old spelling → new words; without any, the
# value of the option is an argument now.
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "compare": {"--picture": "--write"},
    "dst run": {"--first": "--seed", "--out": "--write", "-j": "--workers"},
    "enumerate allocations": {
        "--budget": "--max-steps", "--first": "--limit 1", "--list": "", "--pod": "",
    },
    "node": {"--status": "--drivers"},
    "plan nodes": {"--budget": "--max-price"},
    "schedule": {
        "--claim": "-f", "--kubeconfig": "--apply --kubeconfig", "--nodes": "-f",
        "--server": "--apply --server",
    },
    "scheduler": {"--name": "--scheduler-name"},
    "simulate batsim-scheduler": {"--socket": "--listen"},
    "simulate campaign": {"--out": "--write"},
    "simulate run": {
        "--events": "", "--nodes": "", "--out": "--export", "--platform": "", "--pods": "",
        "--policy": "--scheduler", "--trace": "", "--workload": "",
    },
    "snapshot": {"--output": "", "-o": ""},
    "user add": {"--output": "--write", "-o": "--write"},
    "what-if": {"--without": "--end"},
}  # fmt: skip
# Its options are those of another program.
OF_OTHERS: Final = "simulate program"
HELP: Final = ("-h", "--help")


def rewritten(args: Sequence[str], program: str) -> list[str]:
    """Return the arguments of `program` in today's spelling; on stderr, say what that is."""
    old = _old_command(args)
    new = [*COMMANDS[old].split(), *args[len(old.split()) :]] if old else list(args)
    starts = [" ".join(new[:size]) for size in (1, 2)]
    if OF_OTHERS not in starts:
        tables = [SYNONYMS, *(OPTIONS.get(name, {}) for name in (old, *starts))]
        new = list(_with_new_options(new, {k: v for each in tables for k, v in each.items()}))
    if new != list(args):
        echo(f"this spelling will be removed in 0.4; use: {program} {shlex.join(new)}", err=True)
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

"""What a simulated script is made of: steps, a state, and the commands of the shell."""

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from typing import Final

from dralab.node.shell_words import exported
from dralab.values.records import dataclass

UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class WriteLine:
    """A line of output."""

    line: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for some seconds; None: until stopped."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class UnknownProgram:
    """Run a program that is not known here, as the last step of the script."""

    name: str


Step = WriteLine | Sleep | UnknownProgram
Steps = Generator[Step, None, int]


class ScriptExit(Exception):  # noqa: N818 - control flow of the language itself
    """The script ends."""

    def __init__(self, code: int) -> None:
        self.code = code


class LoopBreak(Exception):  # noqa: N818 - the same
    """A loop ends."""


class LoopContinue(Exception):  # noqa: N818 - the same
    """The next turn of a loop begins."""


@dataclass(slots=True)
class ShellState:
    """The state of a script: variables, traps, and the last exit code."""

    env: dict[str, str]
    shell: str = "sh"
    traps: dict[str, str] = field(default_factory=dict)
    code: int = 0
    background: list[float | None] = field(default_factory=list)


def _export(arguments: list[str], state: ShellState) -> Steps:
    for argument in arguments:
        if "=" in argument:
            name, _, value = argument.partition("=")
            state.env[name] = value
    if not [each for each in arguments if each != "-p"]:
        shown = {**state.env, "PWD": state.env.get("PWD", "/")}
        if state.shell == "bash":
            shown["SHLVL"] = state.env.get("SHLVL", "1")
        for line in exported(shown, state.shell):
            yield WriteLine(line)
    return 0


def _env(arguments: list[str], state: ShellState) -> Steps:
    for name in arguments or list(state.env):
        if name in state.env:
            yield WriteLine(state.env[name] if arguments else f"{name}={state.env[name]}")
    return 0 if all(name in state.env for name in arguments) else 1


def _echo(arguments: list[str], state: ShellState) -> Steps:
    del state
    while arguments[:1] in (["-n"], ["-e"]):
        arguments = arguments[1:]
    for line in " ".join(arguments).split("\n"):
        yield WriteLine(line)
    return 0


def _printf(arguments: list[str], state: ShellState) -> Steps:
    del state
    text = arguments[0] if arguments else ""
    for argument in arguments[1:]:
        text = re.sub("%[sd]", lambda _, new=argument: new, text, count=1)  # type: ignore[misc]
    for line in text.replace("\\n", "\n").rstrip("\n").split("\n"):
        yield WriteLine(line)
    return 0


def _sleep(arguments: list[str], state: ShellState) -> Steps:
    del state
    total = 0.0
    for argument in arguments:
        if argument == "infinity":
            yield Sleep(None)
            return 0
        match = re.fullmatch(r"([0-9]*\.?[0-9]+)([smhd]?)", argument)
        if match is None:
            yield WriteLine(f"sleep: invalid time interval '{argument}'")
            return 1
        total += float(match[1]) * UNITS[match[2] or "s"]
    yield Sleep(total)
    return 0


def _wait(arguments: list[str], state: ShellState) -> Steps:
    del arguments
    if state.background:
        seconds = [each for each in state.background if each is not None]
        longest = max(seconds) if len(seconds) == len(state.background) else None
        state.background.clear()
        yield Sleep(longest)
    return 0


def _trap(arguments: list[str], state: ShellState) -> Steps:
    for signal in arguments[1:]:
        state.traps[signal] = arguments[0]
    yield from ()
    return 0


def _exit(arguments: list[str], state: ShellState) -> Steps:
    yield from ()
    raise ScriptExit(int(arguments[0]) if arguments and arguments[0].isdigit() else state.code)


def _code(code: int) -> Callable[[list[str], ShellState], Steps]:
    def act(arguments: list[str], state: ShellState) -> Steps:
        del arguments, state
        yield from ()
        return code

    return act


def _tail(arguments: list[str], state: ShellState) -> Steps:
    del state
    if {"-f", "-F"} & set(arguments):
        yield Sleep(None)
    return 0


def _leave(error: type[Exception]) -> Callable[[list[str], ShellState], Steps]:
    def act(arguments: list[str], state: ShellState) -> Steps:
        del arguments, state
        yield from ()
        raise error

    return act


def _hostname(arguments: list[str], state: ShellState) -> Steps:
    del arguments
    yield WriteLine(state.env.get("HOSTNAME", ""))
    return 0


COMMANDS: Final[Mapping[str, Callable[[list[str], ShellState], Steps]]] = {
    "export": _export,
    "env": _env,
    "printenv": _env,
    "echo": _echo,
    "printf": _printf,
    "sleep": _sleep,
    "wait": _wait,
    "trap": _trap,
    "exit": _exit,
    "true": _code(0),
    ":": _code(0),
    "false": _code(1),
    "break": _leave(LoopBreak),
    "continue": _leave(LoopContinue),
    "tail": _tail,
    "hostname": _hostname,
    "pause": lambda arguments, state: _sleep(["infinity"], state),  # noqa: ARG005
}

"""A small part of the shell language: enough for the commands of demos.

Lists, `if`, loops, groups and subshells mean what they mean in sh. Of a pipe only the first program
is simulated, and the code is 0. `case`, functions, `$(…)` and `set -e` are not understood.

A script is a generator of steps: `WriteLine` a line, `Sleep` for seconds (None: for ever), or run
an `UnknownProgram` that comes last; what it does is for the caller to decide. Other unknown
programs do nothing and succeed. The generator's value is the exit code.

>>> list(run(["sh", "-c", "echo $WHO; sleep 2"], {"WHO": "me"}))
[WriteLine(line='me'), Sleep(seconds=2.0)]
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Final

from dralab.node.shell_words import OPERATORS, expand, exported, tokens
from dralab.values.records import dataclass

SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "busybox"})
UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
MOST_STEPS: Final = 100_000
MOST_BACKGROUND: Final = 1000  # steps of a command in the background; more do not end
SEPARATORS: Final = OPERATORS - {"("}
CLOSING: Final = {  # by the word that begins a compound command: what nests in it, and its end
    "while": (LOOPS := {"while", "until", "for"}, "done"),
    "until": (LOOPS, "done"),
    "for": (LOOPS, "done"),
    "if": ({"if"}, "fi"),
    "(": ({"("}, ")"),
    "{": ({"{"}, "}"),
}
# Programs that end by themselves, though what they do is not simulated.
_BRIEF: Final = """
apk apt apt-get awk basename cat cd chmod chown chroot cp curl cut date dd df dirname du
find getent git grep groupadd gunzip gzip head id install ip iptables kill ln ls mkdir
mktemp mount mv openssl pip ps pwd readlink rm sed seq set sort source stat sysctl tar tee
test touch tr ulimit umask uname unset unzip useradd wc wget whoami xargs [ [[ . eval local
read return shift umount
"""
BRIEF: Final = frozenset(_BRIEF.split())


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


class _Exit(Exception):  # noqa: N818 - control flow of the language itself
    def __init__(self, code: int) -> None:
        self.code = code


class _Break(Exception):  # noqa: N818 - the same
    pass


class _Continue(Exception):  # noqa: N818 - the same
    pass


@dataclass(slots=True)
class ShellState:
    """The state of a script: variables, traps, and the last exit code."""

    env: dict[str, str]
    shell: str = "sh"
    traps: dict[str, str] = field(default_factory=dict)
    code: int = 0
    background: list[float | None] = field(default_factory=list)


def understood(argv: Sequence[str]) -> bool:
    """Return whether `run` can simulate a command."""
    return bool(argv) and (_base(argv[0]) in SHELLS or _base(argv[0]) in COMMANDS)


def run(argv: Sequence[str], env: Mapping[str, str], state: ShellState | None = None) -> Steps:
    """Simulate a command."""
    state = state or ShellState(dict(env))
    name = _base(argv[0])
    if name == "busybox" and len(argv) > 1:
        argv, name = argv[1:], _base(argv[1])
    try:
        if name in SHELLS:
            state.shell = name
            script = _script(argv)
            if script is None:
                return (yield from _file(argv))
            return (yield from _list(tokens(script), state, last=True))
        return (yield from _command(list(argv), state, last=True))
    except _Exit as over:
        return over.code


def lasts(argv: Sequence[str], most: float) -> float:
    """Return how many seconds a command would take, `most` at most; 0 for unknown programs.

    >>> lasts(["sh", "-c", "sleep 1; sleep 2"], 30.0), lasts(["sleep", "infinity"], 30.0)
    (3.0, 30.0)
    """
    found = 0.0
    for step in run(argv, {}) if understood(argv) else ():
        if isinstance(step, Sleep):
            found += most if step.seconds is None else step.seconds
        if found >= most:
            return most
    return found


def trapped(state: ShellState, signal: str) -> Steps | None:
    """Return the steps of the trap for a signal; None if there is no trap."""
    action = state.traps.get(signal, state.traps.get(f"SIG{signal}"))
    if action is None:
        return None

    def act() -> Steps:
        try:
            yield from _list(tokens(action), state)
        except _Exit as over:
            return over.code
        return -1  # It continues.

    return act()


# --- the language -------------------------------------------------------------------------------


def _script(argv: Sequence[str]) -> str | None:
    for index, argument in enumerate(argv[1:], 1):
        if re.fullmatch(r"-[a-z]*c[a-z]*", argument):
            return argv[index + 1] if index + 1 < len(argv) else ""
    return None


def _file(argv: Sequence[str]) -> Steps:
    """Run a script that is a file of the image, where a shell is given one."""
    for argument in argv[1:]:
        if not argument.startswith("-"):
            yield UnknownProgram(argument)
            break
    return 0


def _list(words: Sequence[str], state: ShellState, *, last: bool = False) -> Steps:
    """Run commands; after the `last` ones the script ends."""
    at, skips = 0, False
    while at < len(words):
        if words[at] in SEPARATORS:
            at += 1
            continue
        negated = words[at] == "!"
        begin, end = at + negated, _end(words, at + negated)
        operator, at = words[end] if end < len(words) else ";", end + 1
        piped = operator == "|"
        while operator == "|":
            # What a pipe would filter is shown as it is.
            after = _end(words, at)
            operator, at = words[after] if after < len(words) else ";", after + 1
        if skips:
            pass
        elif operator == "&":
            state.background.append(_background(words[begin:end], state))
            state.code = 0
        else:
            final = last and all(token in SEPARATORS for token in words[at:])
            code = yield from _one(words[begin:end], state, last=final)
            # The code of a pipe is that of its last program, which is not simulated.
            code = 0 if piped else code
            state.code = int(code == 0) if negated else code
        skips = (operator == "&&" and state.code != 0) or (operator == "||" and state.code == 0)
    return state.code


def _end(words: Sequence[str], at: int) -> int:
    """Return the end of the command that begins at `at`: an operator, or the last word."""
    if at < len(words) and words[at] in CLOSING:
        begins, closing = CLOSING[words[at]]
        depth = 0
        while at < len(words):
            depth += (words[at] in begins) - (words[at] == closing)
            at += 1
            if depth == 0:
                break
    while at < len(words) and words[at] not in OPERATORS:
        at += 1
    return at


def _one(words: Sequence[str], state: ShellState, *, last: bool) -> Steps:
    """Run one command, simple or compound."""
    first = words[0] if words else ""
    if first not in CLOSING:
        return (yield from _simple(words, state, last=last))
    closing = CLOSING[first][1]
    inside = words[1 : max((i for i, t in enumerate(words) if t == closing), default=None)]
    if first == "{":
        return (yield from _list(inside, state, last=last))
    if first == "if":
        return (yield from _if(inside, state, last=last))
    if first == "(":
        try:
            return (yield from _list(inside, _subshell(state), last=last))
        except _Exit as over:
            return over.code
    return (yield from _loop(first, inside, state))


def _subshell(state: ShellState) -> ShellState:
    return replace(state, env=dict(state.env), traps=dict(state.traps), background=[])


def _loop(kind: str, words: Sequence[str], state: ShellState) -> Steps:
    begin = words.index("do") if "do" in words else len(words)
    head, body = words[:begin], words[begin + 1 :]
    code = 0
    try:
        if kind == "for":
            for word in head[2:]:
                if word not in SEPARATORS:
                    state.env[head[0]] = expand(word, state.env, state.code)
                    code = yield from _turn(body, state)
            return code
        for _ in range(MOST_STEPS):
            if ((yield from _list(head, state)) == 0) == (kind == "until"):
                break
            slept = False
            for step in _turn(body, state):
                slept = slept or isinstance(step, Sleep)
                yield step
            code = state.code
            if not slept:
                yield Sleep(1.0)  # A busy loop of a demonstration would only fill the log.
    except _Break:
        return 0
    return code


def _turn(body: Sequence[str], state: ShellState) -> Steps:
    try:
        return (yield from _list(body, state))
    except _Continue:
        state.code = 0
        return 0


def _if(words: Sequence[str], state: ShellState, *, last: bool) -> Steps:
    parts: list[tuple[str, list[str]]] = [("if", [])]
    depth = 0
    for token in words:
        depth += (token == "if") - (token == "fi")
        if depth == 0 and token in {"then", "elif", "else"}:
            parts.append((token, []))
        else:
            parts[-1][1].append(token)
    held = False
    for word, part in parts:
        if word == "else" or (word == "then" and held):
            return (yield from _list(part, state, last=last))
        held = word != "then" and (yield from _list(part, state)) == 0
    return 0


def _background(words: Sequence[str], state: ShellState) -> float | None:
    """Return how many seconds a command takes in the background; None if it does not end."""
    total = 0.0
    steps = _list(words, _subshell(state), last=True)
    with suppress(_Exit):
        for number, step in enumerate(steps):
            if number == MOST_BACKGROUND or isinstance(step, UnknownProgram):
                return None
            if isinstance(step, Sleep):
                if step.seconds is None:
                    return None
                total += step.seconds
    return total


def _simple(words: Sequence[str], state: ShellState, *, last: bool) -> Steps:
    found: list[str] = []
    target = False  # Whether the word is the file of a redirection.
    silent = False
    for word in words:
        if target:
            target = False
        elif match := re.match(r"(\d?)(>{1,2}|<)(.*)", word):
            target = not match[3]
            silent = silent or (match[2] != "<" and match[1] != "2" and match[3][:1] != "&")
        else:
            found.append(expand(word, state.env, state.code))
    while found and re.match(r"[A-Za-z_]\w*=", found[0]):
        name, _, value = found.pop(0).partition("=")
        if not found:
            state.env[name] = value
    if not found:
        return 0
    steps = _command(found, state, last=last)
    return (yield from _silent(steps) if silent else steps)


def _silent(steps: Steps) -> Steps:
    """Yield steps without lines: they go to a file."""
    try:
        while True:
            step = next(steps)
            if not isinstance(step, WriteLine):
                yield step
    except StopIteration as over:
        return int(over.value)


def _command(argv: list[str], state: ShellState, *, last: bool) -> Steps:
    name = _base(argv[0])
    command = COMMANDS.get(name)
    if command is None:
        if last and name in SHELLS:
            return (yield from run(argv, state.env))
        if last and name not in BRIEF:
            yield UnknownProgram(name)
        return 0
    return (yield from command(argv[1:], state))


# --- the commands ---------------------------------------------------------------------------------


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
    raise _Exit(int(arguments[0]) if arguments and arguments[0].isdigit() else state.code)


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


def _exec(arguments: list[str], state: ShellState) -> Steps:
    if not arguments:
        return 0
    raise _Exit((yield from run(arguments, state.env, state)))


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
    "break": _leave(_Break),
    "continue": _leave(_Continue),
    "tail": _tail,
    "exec": _exec,
    "hostname": _hostname,
    "pause": lambda arguments, state: _sleep(["infinity"], state),  # noqa: ARG005
}


def _base(path: str) -> str:
    return path.rpartition("/")[2]

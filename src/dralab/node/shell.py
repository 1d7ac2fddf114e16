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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from dralab.node.shell_commands import (
    COMMANDS,
    LoopBreak,
    LoopContinue,
    ScriptExit,
    ShellState,
    Sleep,
    Steps,
    UnknownProgram,
    WriteLine,
)
from dralab.node.shell_words import OPERATORS, expand, tokens

SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "busybox"})
KNOWN: Final = SHELLS | COMMANDS.keys() | {"exec"}
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


def understood(argv: Sequence[str]) -> bool:
    """Return whether `run` can simulate a command."""
    return bool(argv) and _base(argv[0]) in KNOWN


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
    except ScriptExit as over:
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
        except ScriptExit as over:
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
        except ScriptExit as over:
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
    except LoopBreak:
        return 0
    return code


def _turn(body: Sequence[str], state: ShellState) -> Steps:
    try:
        return (yield from _list(body, state))
    except LoopContinue:
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
    with suppress(ScriptExit):
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
    if name == "exec":
        return (yield from _exec(argv[1:], state))
    command = COMMANDS.get(name)
    if command is None:
        if last and name in SHELLS:
            return (yield from run(argv, state.env))
        if last and name not in BRIEF:
            yield UnknownProgram(name)
        return 0
    return (yield from command(argv[1:], state))


def _exec(arguments: list[str], state: ShellState) -> Steps:
    if not arguments:
        return 0
    raise ScriptExit((yield from run(arguments, state.env, state)))


def _base(path: str) -> str:
    return path.rpartition("/")[2]

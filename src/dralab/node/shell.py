"""A small part of the shell language: enough for the commands of demos.

A script is a generator of steps: `WriteLine` a line, `Sleep` for seconds (None: for ever), or run
an `UnknownProgram` that comes last; what it does is for the caller to decide. Other unknown
programs do nothing and succeed. The generator's value is the exit code.

>>> list(run(["sh", "-c", "echo $WHO; sleep 2"], {"WHO": "me"}))
[WriteLine(line='me'), Sleep(seconds=2.0)]
"""

import re
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "busybox"})
OPERATORS: Final = frozenset({";", "&", "&&", "||", "|", "\n", "(", ")"})
UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
VARIABLE: Final = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+|\?))")
MOST_STEPS: Final = 100_000
# Programs that end by themselves, though what they do is not simulated.
_BRIEF: Final = """
apk apt apt-get awk basename cat cd chmod chown chroot cp curl cut date dd df dirname du
find getent git grep groupadd gunzip gzip head id install ip iptables kill ln ls mkdir
mktemp mount mv openssl pip ps pwd readlink rm sed seq set sort source stat sysctl tar tee
test touch tr ulimit umask uname unset unzip useradd wc wget whoami xargs [ [[ . eval local
read return shift umount
"""
BRIEF: Final = frozenset(_BRIEF.split())
SHORT: Final = 4096  # characters of a script whose words are remembered


@dataclass(frozen=True, slots=True)
class WriteLine:
    """A line of output."""

    line: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for some seconds; None: until told to stop."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class UnknownProgram:
    """Run a program that is not known here, as the last thing that the script does."""

    name: str


Step = WriteLine | Sleep | UnknownProgram
Steps = Generator[Step, None, int]


class _Exit(Exception):  # noqa: N818 - control flow of the language itself
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(slots=True)
class ShellState:
    """What a script changes: variables, traps, and the last exit code."""

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
            return (yield from _list(_tokens(script), state, last=True))
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
            yield from _list(_tokens(action), state)
        except _Exit as over:
            return over.code
        return -1  # It continues.

    return act()


def exported(env: Mapping[str, str], shell: str) -> Iterator[str]:
    """Yield the lines of `export` without arguments, as that shell writes them.

    >>> list(exported({"A": "1"}, "sh")), list(exported({"A": "1"}, "bash"))
    (["export A='1'"], ['declare -x A="1"', 'declare -x OLDPWD'])
    """
    lines = dict(env)
    if shell == "bash":
        for name in sorted({*lines, "OLDPWD"}):
            if name not in lines:
                yield f"declare -x {name}"
            elif any(ord(c) < 32 for c in lines[name]):
                escaped = lines[name].encode("unicode_escape").decode().replace("'", "\\'")
                yield f"declare -x {name}=$'{escaped}'"
            else:
                escaped = re.sub(r'(["\\$`])', r"\\\1", lines[name])
                yield f'declare -x {name}="{escaped}"'
        return
    for name in sorted(lines):
        value = lines[name].replace("'", "'\"'\"'")
        yield f"export {name}='{value}'"


# --- the language -------------------------------------------------------------------------------


def _script(argv: Sequence[str]) -> str | None:
    for index, argument in enumerate(argv[1:], 1):
        if re.fullmatch(r"-[a-z]*c[a-z]*", argument):
            return argv[index + 1] if index + 1 < len(argv) else ""
    return None


def _tokens(script: str) -> Sequence[str]:
    """Return the words and operators of a script."""
    # The pods of one template run the same one.
    return _short_tokens(script) if len(script) <= SHORT else _split(script)


@lru_cache(256)
def _short_tokens(script: str) -> Sequence[str]:
    return tuple(_split(script))


def _split(script: str) -> list[str]:
    lexer = shlex.shlex(
        script.replace("\\\n", " ").replace("\n", " ; "), posix=False, punctuation_chars=";&|()"
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return [part for token in lexer for part in _operators(token)]
    except ValueError:
        return script.split()


def _operators(token: str) -> list[str]:
    """Return a run of punctuation as operators: `;;&&` are three."""
    if set(token) <= set(";&|()"):
        return re.findall(r"&&|\|\||[;&|()]", token)
    return [token]


def _file(argv: Sequence[str]) -> Steps:
    """Run a script that is a file of the image, where a shell is given one."""
    for argument in argv[1:]:
        if not argument.startswith("-"):
            yield UnknownProgram(argument)
            break
    return 0


def _list(tokens: Sequence[str], state: ShellState, *, last: bool = False) -> Steps:
    """Run commands; after the `last` ones the script is over."""
    steps, at = 0, 0
    while at < len(tokens):
        steps += 1
        token = tokens[at]
        if token in OPERATORS:
            at += 1
            continue
        if token in {"while", "until", "for"}:
            end = _closing(tokens, at)
            yield from _loop(tokens[at:end], state)
            at = end + 1
            continue
        if token == "if":
            end = _closing(tokens, at, "if", "fi")
            yield from _if(tokens[at + 1 : end], state, last=last and _is_end(tokens, end + 1))
            at = end + 1
            continue
        end = at
        while end < len(tokens) and tokens[end] not in OPERATORS:
            end += 1
        words = tokens[at:end]
        operator = tokens[end] if end < len(tokens) else ";"
        if operator == "&":
            state.background.append(_background(words, state))
            state.code = 0
        else:
            rest = _after_pipe(tokens, end) if operator == "|" else end
            final = last and _is_end(tokens, rest)
            state.code = yield from _simple(words, state, last=final)
        at = end + 1
        if (operator == "&&" and state.code) or (operator == "||" and not state.code):
            while at < len(tokens) and tokens[at] not in {";", "&", "||", "&&"}:
                at += 1
        elif operator == "|":
            # What a pipe would filter is shown as it is.
            at = _after_pipe(tokens, at)
    return state.code


def _after_pipe(tokens: Sequence[str], at: int) -> int:
    while at < len(tokens) and tokens[at] not in {";", "&&", "||", "&"}:
        at += 1
    return at


def _is_end(tokens: Sequence[str], at: int) -> bool:
    return all(tokens[index] in OPERATORS for index in range(at, len(tokens)))


def _closing(tokens: Sequence[str], at: int, begin: str = "do", end: str = "done") -> int:
    depth = 0
    for index in range(at, len(tokens)):
        if tokens[index] == begin:
            depth += 1
        elif tokens[index] == end:
            depth -= 1
            if depth == 0:
                return index
    return len(tokens)


def _loop(tokens: Sequence[str], state: ShellState) -> Steps:
    begin = tokens.index("do") if "do" in tokens else len(tokens)
    head, body = tokens[1:begin], tokens[begin + 1 :]
    if tokens[0] == "for":
        names = [word for word in head[2:] if word not in OPERATORS and word != "in"]
        for word in names:
            state.env[head[0]] = _expand(word, state)
            yield from _list(body, state)
        return state.code
    for _ in range(MOST_STEPS):
        code = yield from _list(list(head), state)
        if (code == 0) == (tokens[0] == "until"):
            break
        before = state.code
        slept = False
        for step in _list(body, state):
            slept = slept or isinstance(step, Sleep)
            yield step
        if not slept:
            yield Sleep(1.0)  # A busy loop of a demonstration would only fill the log.
        state.code = before
    return state.code


def _if(tokens: Sequence[str], state: ShellState, *, last: bool) -> Steps:
    then = tokens.index("then") if "then" in tokens else len(tokens)
    otherwise = tokens.index("else") if "else" in tokens else len(tokens)
    code = yield from _list(tokens[:then], state)
    body = tokens[then + 1 : otherwise] if code == 0 else tokens[otherwise + 1 :]
    return (yield from _list(body, state, last=last))


def _background(words: Sequence[str], state: ShellState) -> float | None:
    steps = _simple(words, state, last=True)
    total = 0.0
    for step in steps:
        if isinstance(step, UnknownProgram):
            return None
        if isinstance(step, Sleep):
            if step.seconds is None:
                return None
            total += step.seconds
    return total


def _simple(words: Sequence[str], state: ShellState, *, last: bool) -> Steps:
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif re.fullmatch(r"\d?>{1,2}|<", word):
            skip = True
        elif not re.match(r"\d?>{1,2}&?", word):
            found.append(_expand(word, state))
    while found and re.match(r"[A-Za-z_]\w*=", found[0]):
        name, _, value = found.pop(0).partition("=")
        if not found:
            state.env[name] = value
    if not found:
        return 0
    return (yield from _command(found, state, last=last))


def _expand(word: str, state: ShellState) -> str:
    parts = re.findall(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|[^'\"]+", word)

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if name == "?":
            return str(state.code)
        return state.env.get(name, match[2] or "")

    text = ""
    for part in parts:
        if part.startswith("'"):
            text += part[1:-1]
        else:
            inner = part[1:-1] if part.startswith('"') else part
            text += re.sub(r"\\([\"\\$`])", r"\1", VARIABLE.sub(value, inner))
    return text


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
        longest = None if None in state.background else max(b for b in state.background if b)
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
    "tail": _tail,
    "exec": _exec,
    "hostname": _hostname,
    "pause": lambda arguments, state: _sleep(["infinity"], state),  # noqa: ARG005
}


def _base(path: str) -> str:
    return path.rpartition("/")[2]

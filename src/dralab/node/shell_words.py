"""The words of a script: how a shell splits its text, expands and writes variables.

What the words mean is for `shell`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

OPERATORS: Final = frozenset({";", "&", "&&", "||", "|", "(", ")"})
SHORT: Final = 4096  # characters of a script whose words are remembered
# An escaped character, or a variable: ${NAME}, ${NAME:-default}, $NAME, $?.
_VARIABLE: Final = r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+|\?))"
QUOTED: Final = re.compile(rf"\\([\"\\$`])|{_VARIABLE}")
UNQUOTED: Final = re.compile(rf"\\(.)|{_VARIABLE}")


def tokens(script: str) -> Sequence[str]:
    """Return the words and operators of a script; words keep their quotes.

    >>> tokens("echo 'a;b' 2>&1 && true")
    ('echo', "'a;b'", '2>&1', '&&', 'true')
    """
    # The pods of one template run the same one.
    return _short_tokens(script) if len(script) <= SHORT else _split(script)


def expand(word: str, env: Mapping[str, str], code: int) -> str:
    """Return a word without its quotes, with the values of variables; `code` is that of `$?`."""
    parts = re.findall(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?:\\.|[^'\"])+", word)

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        name = match[2] or match[4]
        return str(code) if name == "?" else env.get(name, match[3] or "")

    text = ""
    for part in parts:
        if part.startswith("'"):
            text += part[1:-1]
        elif part.startswith('"'):
            text += QUOTED.sub(value, part[1:-1])
        else:
            text += UNQUOTED.sub(value, part)
    return text


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
        return _redirected([part for token in lexer for part in _operators(token)])
    except ValueError:
        return script.split()


def _operators(token: str) -> list[str]:
    """Return a run of punctuation as operators: `;;&&` are three."""
    if set(token) <= set(";&|()"):
        return re.findall(r"&&|\|\||[;&|()]", token)
    return [token]


def _redirected(parts: list[str]) -> list[str]:
    """Join what belongs to one redirection: `2>&1` is a word, and so is `&>`."""
    found: list[str] = []
    for part in parts:
        if found[-2:-1] and found[-1] == "&" and re.fullmatch(r"\d?>", found[-2]):
            found[-2:] = [f"{found[-2]}&{part}"]
        elif found and found[-1] == "&" and part.startswith(">"):
            found[-1] = part
        else:
            found.append(part)
    return found

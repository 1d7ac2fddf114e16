"""The errors of Go's `net/url` for invalid URLs."""

import re
from typing import Final

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
NOT_IN_HOST: Final = re.compile(r"[^A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")
ESCAPED_LETTER: Final = re.compile(r"%(?!25)[0-7][0-9A-Fa-f]")
USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


def url_problem(text: str) -> str | None:
    """Return Go's error for a URL, if it is invalid.

    >>> url_problem("https://example.org/a"), url_problem("1a:b")
    (None, 'first path segment in URL cannot contain colon')
    """
    if any(ord(character) < 0x20 or character == "\x7f" for character in text):
        return "net/url: invalid control character in URL"
    if text.startswith(":"):
        return "missing protocol scheme"
    text, _, fragment = text.partition("#")
    scheme = SCHEME.match(text)
    rest = (text[scheme.end() :] if scheme else text).partition("?")[0]
    if not rest.startswith("/"):
        if scheme:
            return None
        if ":" in rest.partition("/")[0]:
            return "first path segment in URL cannot contain colon"
    elif rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        if problem := _authority_problem(authority):
            return problem
        rest = slash + path
    for part in (rest, fragment):
        if found := ESCAPE.search(part):
            return f'invalid URL escape "{found.group()}"'
    return None


def _authority_problem(authority: str) -> str | None:
    user, _, host = authority.rpartition("@")
    if not USER.fullmatch(user):
        return "net/url: invalid userinfo"
    if host.startswith("["):
        inside, bracket, port = host.rpartition("]")
        if not bracket:
            return "missing ']' in host"
        host = inside[1:]
    else:
        name, colon, port = host.partition(":")
        host, port = name, colon + port
    if port and not re.fullmatch(r":[0-9]*", port):
        return f'invalid port "{port}" after host'
    if found := ESCAPE.search(host) or ESCAPED_LETTER.search(host):
        return f'invalid URL escape "{found.group()}"'
    if found := NOT_IN_HOST.search(host):
        return f'invalid character "{found.group()}" in host name'
    return None

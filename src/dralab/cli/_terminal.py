"""All output to a terminal, with control characters escaped.

Expressions, annotations, messages, file names and the output of drivers are written by others. An
escape sequence in one of them could move the cursor, hide lines or answer for the user; a
right-to-left mark could show another text than the one that is there.
"""

import logging
import re
from typing import Final

import click

# C0 and C1 but for tabs and line ends, marks that reorder a line, and what UTF-8 cannot encode.
UNSAFE: Final = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    r"""Return a text with its control characters written as in a string of Python.

    >>> print(escaped("a\x1b[2Jb\r\n"))
    a\x1b[2Jb\r
    <BLANKLINE>
    """
    return UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def echo(
    text: object = "", *, err: bool = False, nl: bool = True, colour: str | None = None
) -> None:
    """Print a text, which may have several lines; on stderr with `err`."""
    shown = escaped(str(text))
    click.echo(click.style(shown, fg=colour) if colour else shown, err=err, nl=nl)


def echo_json_text(text: bytes | str, *, nl: bool = True) -> None:
    """Print JSON that is written already; the same value is read from what is printed."""
    shown = text.decode() if isinstance(text, bytes) else text
    click.echo(UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", shown), nl=nl)


def echo_over(text: str) -> None:
    """Print over the line of stderr where the cursor is."""
    click.echo(f"\r{escaped(text)}", err=True, nl=False)


def write_file(content: bytes) -> None:
    """Write a file to stdout, for a pipe: what is in it is kept as it is."""
    click.echo(content, nl=False)


class LogFormatter(logging.Formatter):
    """Log lines for people, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        return escaped(super().format(record))


def escape_unconfigured() -> None:
    """Also escape what is logged before a command sets up logging, or without it."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())

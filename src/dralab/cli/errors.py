"""Errors of commands: one line on stderr, and an exit code that scripts can rely on.

0: success, or yes. 1: failure, or no (click's ClickException). 2: bad input or usage: a wrong
option (click's UsageError), a bad file, a server that does not answer, an extra that is not
installed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import click


class UnusableInput(click.ClickException):
    """The input of a command cannot be used; nothing was done."""

    exit_code = 2


@contextmanager
def refusing(
    *errors: type[Exception],
    option: str = "",
    kind: type[click.ClickException] = UnusableInput,
) -> Iterator[None]:
    """Report these errors in one line; they may name an option."""
    try:
        yield
    except errors as error:
        if option:
            raise click.BadParameter(str(error), param_hint=option) from error
        raise kind(str(error)) from error

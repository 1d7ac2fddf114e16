"""How commands fail: one line on stderr, and an exit code that scripts can rely on.

0: success, or yes. 1: failure, or no (click's ClickException). 2: bad input or usage: a wrong
option (click's UsageError), a bad file, a server that does not answer, an extra that is not
installed.
"""

import click


class UnusableInput(click.ClickException):
    """The input of a command cannot be used; nothing was done."""

    exit_code = 2

"""How commands end early: one line on stderr, and an exit code that scripts can rely on.

0: done, or yes. 1: no, or it failed on the way (click's own ClickException). 2: what was given
cannot be used: a wrong option (click's UsageError), a bad file, a server that does not answer, an
extra that is not installed.
"""

import click


class Unusable(click.ClickException):
    """What a command was given cannot be used; nothing was done."""

    exit_code = 2

"""The options that say who is known to a server, by the names of kube-apiserver's flags."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from dralab.apiserver.authentication.settings import AuthenticationFlags

Command = TypeVar("Command", bound=Callable[..., Any])
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
OPTIONS: Final = [
    click.option(
        "--token-auth-file",
        type=FILE,
        metavar="FILE",
        help='Users with static tokens: lines of token,name,uid,"group,group".',
    ),
    click.option(
        "--client-ca-file",
        type=FILE,
        metavar="FILE",
        help="Accept client certificates of these authorities (PEM), beside the server's own: the "
        "common name is the user, organizations are its groups.",
    ),
]


def authentication_options(command: Command) -> Command:
    """Add the options to a command that serves an API."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def flags_of(options: Mapping[str, Any]) -> "AuthenticationFlags":
    """Return the values of these options. UsageError."""
    from dralab.apiserver.authentication.settings import AuthenticationFlags

    return AuthenticationFlags(**options)


def check_plain(options: Mapping[str, Any]) -> None:
    """Refuse options without TLS, where no client-go would send a credential. UsageError."""
    for name, value in options.items():
        if value:
            raise click.UsageError(
                f"--{name.replace('_', '-')} needs TLS (kubectl sends no credential over plain "
                "HTTP): omit --plain"
            )

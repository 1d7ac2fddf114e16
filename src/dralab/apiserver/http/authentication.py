"""Who asks: bearer tokens, given out by hand or signed by the server."""

from collections.abc import Mapping
from typing import Protocol

from dralab.api.status import ApiError
from dralab.apiserver.users import ADMIN, User


class Authenticator(Protocol):
    """Turns a bearer token into a user; None where it does not know the token."""

    def user_of(self, token: str) -> User | None:
        """Return who has this token."""
        ...


class Everyone:
    """Whoever reaches the server is its administrator: for servers on the loopback alone."""

    def user_of(self, token: str) -> User | None:  # noqa: ARG002 - whoever it is
        """Return the administrator."""
        return ADMIN


class Tokens:
    """A table of tokens."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.users = dict(users)

    def user_of(self, token: str) -> User | None:
        """Return who has this token."""
        return self.users.get(token)


def bearer(header: str) -> str:
    """Return the token of an Authorization header; empty where it has none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def unauthorized() -> ApiError:
    """Return what a client gets whom nobody knows."""
    return ApiError("Unauthorized", "Unauthorized")

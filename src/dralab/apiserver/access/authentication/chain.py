"""The chain of authenticators: finds the one that recognises a request's credentials.

In the order of a real server: the headers of a proxy, the client certificate, then the bearer
token, which may be one of a table, of a service account or of an OpenID provider. A credential
that is invalid causes a refusal only if no other is accepted.
Sources: k8s.io/kubernetes `pkg/kubeapiserver/authenticator`, k8s.io/apiserver
`authentication/request/{union,bearertoken,websocket}`.
"""

import base64
import binascii
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.certificates import ClientCertificates
from dralab.apiserver.access.authentication.errors import Rejected
from dralab.apiserver.access.authentication.front_proxies import FrontProxies
from dralab.apiserver.access.authentication.heads import Head
from dralab.apiserver.access.users import ADMIN, ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from dralab.values.records import dataclass
from dralab.values.remembering import remembered

logger = logging.getLogger(__name__)

WEBSOCKET_TOKEN: Final = "base64url.bearer.authorization.k8s.io."
INVALID: Final = "invalid bearer token"


# Not frozen, as values are elsewhere: one is made for every request. They are immutable.
@dataclass(slots=True, kw_only=True)
class Known:
    """The owner of a token. `audiences` are those it is for; None if it is for every audience."""

    user: User
    audiences: Sequence[str] | None = None


class TokenAuthenticator(Protocol):
    """Recognises tokens of one kind."""

    def known(self, token: str) -> Known | None:
        """Return the owner of a token; None for a token of another kind.

        Rejected: it is of this kind, and is forged or expired, or its owner was deleted.
        """
        ...


class Authentication:
    """Finds out who sends a request.

    Without `tokens` and `certificates` no credentials are required: every client of the
    server is an administrator, except with a token of `service_accounts`, which is honoured.
    `audiences` are the names under which this server accepts tokens. With `anonymous`, requests
    without a credential are `system:anonymous`.

    >>> from dralab.apiserver.access.authentication.tokens import TokenTable
    >>> chain = Authentication(tokens=[TokenTable({"t0ken": User(name="jane", groups=())})])
    >>> chain.known("t0ken", ()).user.groups
    ('system:authenticated',)
    """

    def __init__(
        self,
        *,
        tokens: Sequence[TokenAuthenticator] = (),
        certificates: ClientCertificates | None = None,
        proxies: FrontProxies | None = None,
        service_accounts: TokenAuthenticator | None = None,
        audiences: Sequence[str] = (),
        anonymous: bool = False,
    ) -> None:
        self.is_open = not tokens and certificates is None
        self.certificates = certificates
        self.proxies = proxies
        self.audiences = tuple(audiences)
        self.anonymous = anonymous
        self._tokens = [*tokens, *([service_accounts] if service_accounts else [])]

    def user_of(self, head: Head) -> User:
        """Return who sends a request. ApiError Unauthorized."""
        problems: list[str] = []
        if head.certificate and (user := self._certified(head, problems)) is not None:
            return authenticated(user)
        headers = head.headers
        token = bearer(headers.get("authorization", "")) or _offered(headers)
        if token:
            try:
                found = self.known(token, self.audiences)
            except Rejected as error:
                problems.append(error.why)
            else:
                if found is not None:
                    return found.user
                problems.append(INVALID)
        if self.is_open and (not problems or problems == [INVALID]):
            return ADMIN
        if problems:
            logger.debug("a request is refused: %s", "; ".join(problems))
        elif self.anonymous:
            return ANONYMOUS
        raise unauthorized()

    def _certified(self, head: Head, problems: list[str]) -> User | None:
        """Return the user that a request's certificate or its proxy names; collect errors."""
        if self.proxies is not None:
            try:
                if (user := self.proxies.user_of(head)) is not None:
                    return user
            except Rejected as error:
                problems.append(error.why)
        if self.certificates is not None:
            try:
                return self.certificates.user_of(head.certificate)
            except Rejected as error:
                problems.append(error.why)
        return None

    def known(self, token: str, audiences: Sequence[str]) -> Known | None:
        """Return the owner of a token, and for which of `audiences` it is; None if unknown.

        Rejected, with the reason of each authenticator that recognised it.
        """
        problems = []
        for authenticator in self._tokens:
            try:
                found = authenticator.known(token)
            except Rejected as error:
                problems.append(error.why)
                continue
            if found is None:
                continue
            meant = _meant(found, self.audiences, audiences)
            if meant is None:
                problems.append(
                    f"token audiences {_quoted(found.audiences or self.audiences)} is invalid for "
                    f"the target audiences {_quoted(audiences)}"
                )
                continue
            return Known(user=authenticated(found.user), audiences=meant)
        if problems:
            raise Rejected("; ".join(problems))
        return None


def _meant(found: Known, own: Sequence[str], wanted: Sequence[str]) -> Sequence[str] | None:
    """Return which of the wanted audiences a token is for; None if none of them."""
    offered = own if found.audiences is None else found.audiences
    if offered is wanted:  # as for every request
        return wanted
    if not wanted:
        return ()
    meant = [name for name in wanted if name in offered]
    return meant or None


def _quoted(names: Sequence[str]) -> str:
    return "[{}]".format(" ".join(f'"{name}"' for name in names))


def authenticated(user: User) -> User:
    """Return a user with the group of all authenticated users."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


@remembered(256, longest=2048)
def bearer(header: str) -> str:
    """Return the token of an Authorization header; empty if it has none."""
    scheme, _, token = header.strip().partition(" ")
    # As a real server reads it: what follows a second space is ignored.
    return token.partition(" ")[0] if scheme.lower() == "bearer" else ""


def is_added_by_browsers(head: Head) -> bool:
    """Return whether a request of a web page could have the credential that this one has.

    A page cannot add a token that it does not know; a browser adds a certificate by itself.
    """
    if bearer(head.headers.get("authorization", "")):
        return False
    return bool(head.certificate) or not _offered(head.headers)


def without_token(protocols: str) -> str:
    """Return the protocols of a WebSocket without the token, which is not passed on.

    >>> without_token("v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dDBrZW4")
    'v5.channel.k8s.io'
    """
    names = (name.strip() for name in protocols.split(","))
    return ", ".join(name for name in names if not name.startswith(WEBSOCKET_TOKEN))


def _offered(headers: Mapping[str, str]) -> str:
    """Return the token that a page's WebSocket names among its protocols, having no headers."""
    protocols = headers.get("sec-websocket-protocol", "")
    if WEBSOCKET_TOKEN not in protocols or not without_token(protocols):
        return ""  # a token alone leaves no protocol to speak
    for protocol in protocols.split(","):
        if (name := protocol.strip()).startswith(WEBSOCKET_TOKEN):
            text = name.removeprefix(WEBSOCKET_TOKEN)
            try:
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            except (binascii.Error, ValueError):
                return ""
    return ""


def unauthorized() -> ApiError:
    """Return the error for a request without a valid credential."""
    return ApiError("Unauthorized", "Unauthorized")

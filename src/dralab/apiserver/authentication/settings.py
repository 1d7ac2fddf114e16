"""How a server authenticates: what an operator gives, and what the server makes of it."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dralab.apiserver.authentication.certificates import ClientCertificates, read_authorities
from dralab.apiserver.authentication.chain import TokenAuthenticator
from dralab.apiserver.authentication.tokens import TokenTable, read_token_file
from dralab.apiserver.users import ADMIN
from dralab.kernel.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationFlags:
    """What an operator gives, by the names of kube-apiserver's flags."""

    token_auth_file: Path | None = None
    client_ca_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings:
    """Who is known to a server. Without tokens and certificates nobody is asked who they are.

    `client_authorities` (DER) are those that TLS trusts when a client shows a certificate.
    """

    tokens: Sequence[TokenAuthenticator] = ()
    certificates: ClientCertificates | None = None
    client_authorities: Sequence[bytes] = ()


def settings_of(
    flags: AuthenticationFlags, clock: Clock, *, token: str = "", own_ca: Path | None = None
) -> AuthenticationSettings:
    """Return the settings of a server with these flags. UnusableSetting.

    `token` is the administrator's; `own_ca` is the server's own authority, where it serves TLS.
    """
    tokens: list[TokenAuthenticator] = [TokenTable({token: ADMIN})] if token else []
    if flags.token_auth_file is not None:
        tokens.append(TokenTable(read_token_file(flags.token_auth_file)))
    authorities: list[bytes] = []
    if own_ca is not None:
        # Without `cryptography`, which most servers need only later.
        authorities.append(ssl.PEM_cert_to_DER_cert(own_ca.read_text("ascii")))
    if flags.client_ca_file is not None:
        authorities += read_authorities(flags.client_ca_file, "--client-ca-file")
    return AuthenticationSettings(
        tokens=tokens,
        certificates=ClientCertificates(authorities, clock) if authorities else None,
        client_authorities=authorities,
    )

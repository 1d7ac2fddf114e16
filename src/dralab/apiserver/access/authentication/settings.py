"""The settings of authentication, and their defaults."""

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dralab.apiserver.access.authentication.certificates import ClientCertificates, read_authorities
from dralab.apiserver.access.authentication.chain import TokenAuthenticator
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.authentication.front_proxies import FrontProxies
from dralab.apiserver.access.authentication.jwt import ALGORITHMS
from dralab.apiserver.access.authentication.keys import read_private_key, read_public_keys
from dralab.apiserver.access.authentication.service_accounts import (
    ISSUER,
    STANDARD,
    ServiceAccountSettings,
)
from dralab.apiserver.access.authentication.tokens import TokenTable, read_token_file
from dralab.apiserver.access.users import ADMIN
from dralab.files.reading import read_own
from dralab.kernel.clock import SECOND, Clock
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.access.authentication.jwt import PrivateKey
    from dralab.apiserver.access.authentication.openid import KeySource, OpenIdTokens

HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationFlags:
    """The settings of an operator, by the names of kube-apiserver's flags."""

    token_auth_file: Path | None = None
    client_ca_file: Path | None = None
    service_account_key_file: Sequence[Path] = ()
    service_account_signing_key_file: Path | None = None
    service_account_issuer: Sequence[str] = ()
    service_account_jwks_uri: str = ""
    service_account_extend_token_expiration: bool = True
    service_account_max_token_expiration: int = 0  # nanoseconds; 0 for no limit
    api_audiences: Sequence[str] = ()
    oidc_issuer_url: str = ""
    oidc_client_id: str = ""
    oidc_ca_file: Path | None = None
    oidc_keys_file: Path | None = None
    oidc_username_claim: str = ""
    oidc_username_prefix: str = ""
    oidc_groups_claim: str = ""
    oidc_groups_prefix: str = ""
    oidc_required_claim: Sequence[str] = ()
    oidc_signing_algs: Sequence[str] = ()
    anonymous_auth: bool = False
    requestheader_client_ca_file: Path | None = None
    requestheader_allowed_names: Sequence[str] = ()
    requestheader_username_headers: Sequence[str] = ()
    requestheader_uid_headers: Sequence[str] = ()
    requestheader_group_headers: Sequence[str] = ()
    requestheader_extra_headers_prefix: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings:
    """The authenticators of a server. Without tokens and certificates no credentials are required.

    `client_authorities` (DER) are those that TLS trusts when a client shows a certificate.
    """

    tokens: Sequence[TokenAuthenticator] = ()
    certificates: ClientCertificates | None = None
    proxies: FrontProxies | None = None
    anonymous: bool = False
    client_authorities: Sequence[bytes] = ()
    service_accounts: ServiceAccountSettings = STANDARD
    openid: "OpenIdTokens | None" = None

    def start(self) -> None:
        """Begin to fetch the keys of an OpenID provider, if one is configured."""
        if self.openid is not None:
            self.openid.source.start()

    def stop(self) -> None:
        """Stop."""
        if self.openid is not None:
            self.openid.source.stop()


def settings_of(
    flags: AuthenticationFlags,
    clock: Clock,
    *,
    token: str = "",
    own_ca: Path | None = None,
    own_key: "Callable[[], PrivateKey] | None" = None,
) -> AuthenticationSettings:
    """Return the settings of a server with these flags. UnusableSetting.

    `token` is the administrator's; `own_ca` is the server's own authority, where it serves TLS;
    `own_key` signs the tokens of service accounts where the operator gives no key.
    """
    users = {} if flags.token_auth_file is None else read_token_file(flags.token_auth_file)
    if token:
        users[token] = ADMIN
    # A file without tokens, too: it says that credentials are required.
    listed = users or flags.token_auth_file is not None
    tokens: list[TokenAuthenticator] = [TokenTable(users)] if listed else []
    authorities: list[bytes] = []
    if own_ca is not None:
        # Without `cryptography`, which most servers need only later.
        authorities.append(ssl.PEM_cert_to_DER_cert(read_own(own_ca).decode("ascii")))
    if flags.client_ca_file is not None:
        authorities += read_authorities(flags.client_ca_file, "--client-ca-file")
    openid = _openid(flags, clock)
    if openid is not None:
        tokens.append(openid)
    proxies = _proxies(flags, clock, authorities)
    trusted = list(proxies.certificates.authorities) if proxies is not None else []
    return AuthenticationSettings(
        tokens=tokens,
        certificates=ClientCertificates(authorities, clock) if authorities else None,
        proxies=proxies,
        anonymous=flags.anonymous_auth,
        client_authorities=authorities + trusted,
        service_accounts=_service_accounts(flags, own_key),
        openid=openid,
    )


def _openid(flags: AuthenticationFlags, clock: Clock) -> "OpenIdTokens | None":
    issuer = flags.oidc_issuer_url
    if not issuer and not flags.oidc_client_id:
        for name in ("ca_file", "keys_file", "username_claim", "groups_claim", "required_claim"):
            if getattr(flags, f"oidc_{name}"):
                flag = f"--oidc-{name.replace('_', '-')}"
                raise UnusableSetting(flag, "needs --oidc-issuer-url and --oidc-client-id")
        return None
    if not issuer or not flags.oidc_client_id:
        raise UnusableSetting("--oidc-issuer-url", "belongs together with --oidc-client-id")
    # Read only where it is needed: every server starts faster.
    from dralab.apiserver.access.authentication.openid import (
        DiscoveredKeys,
        GivenKeys,
        OpenIdSettings,
        OpenIdTokens,
        fetcher,
    )

    url = urlsplit(issuer)
    if url.scheme != "https" or not url.netloc or url.query or url.fragment:
        raise UnusableSetting("--oidc-issuer-url", f"{issuer!r} is not a URL with https")
    algorithms = tuple(flags.oidc_signing_algs) or ("RS256",)
    for name in algorithms:
        if name not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise UnusableSetting("--oidc-signing-algs", f"unknown {name!r}; known: {known}")
    required = []
    for text in flags.oidc_required_claim:
        claim, equals, value = text.partition("=")
        if not claim or not equals:
            raise UnusableSetting("--oidc-required-claim", f"{text!r} is not CLAIM=VALUE")
        required.append((claim, value))
    settings = OpenIdSettings(
        issuer=issuer,
        client_id=flags.oidc_client_id,
        username_claim=flags.oidc_username_claim or "sub",
        username_prefix=flags.oidc_username_prefix,
        groups_claim=flags.oidc_groups_claim,
        groups_prefix=flags.oidc_groups_prefix,
        required_claims=required,
    )
    source: KeySource
    if flags.oidc_keys_file is not None:
        source = GivenKeys.read(flags.oidc_keys_file, algorithms)
    else:
        source = DiscoveredKeys(issuer, algorithms, fetcher(flags.oidc_ca_file))
    return OpenIdTokens(settings, source, clock)


def _proxies(
    flags: AuthenticationFlags, clock: Clock, authorities: Sequence[bytes]
) -> FrontProxies | None:
    file, flag = flags.requestheader_client_ca_file, "--requestheader-client-ca-file"
    if file is None:
        for name, value in (
            ("--requestheader-allowed-names", flags.requestheader_allowed_names),
            ("--requestheader-username-headers", flags.requestheader_username_headers),
            ("--requestheader-group-headers", flags.requestheader_group_headers),
        ):
            if value:
                raise UnusableSetting(name, f"needs {flag}, which names the trusted CAs")
        return None
    if not flags.requestheader_username_headers:
        raise UnusableSetting(flag, "needs --requestheader-username-headers, such as X-Remote-User")
    own = read_authorities(file, flag)
    if not flags.requestheader_allowed_names and set(own) & set(authorities):
        raise UnusableSetting(
            flag,
            f"{file} also signs certificates of users, who could then act as any other user: "
            "set --requestheader-allowed-names",
        )

    def lower(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name.lower() for name in names)

    return FrontProxies(
        certificates=ClientCertificates(own, clock),
        names=tuple(flags.requestheader_allowed_names),
        user_headers=lower(flags.requestheader_username_headers),
        uid_headers=lower(flags.requestheader_uid_headers),
        group_headers=lower(flags.requestheader_group_headers),
        extra_prefixes=lower(flags.requestheader_extra_headers_prefix),
    )


def _service_accounts(
    flags: AuthenticationFlags, own_key: "Callable[[], PrivateKey] | None"
) -> ServiceAccountSettings:
    signing_key, file = own_key, flags.service_account_signing_key_file
    if file is not None:
        found = read_private_key(file, "--service-account-signing-key-file")
        signing_key = lambda: found  # noqa: E731 - as short as its use
    for name in flags.service_account_issuer:
        # Issuers are URLs or plain words, as the server of upstream has it.
        if not name or (":" in name and not urlsplit(name).scheme):
            raise UnusableSetting(
                "--service-account-issuer", f'"{name}" contains a `:` and is not a URL'
            )
    longest = flags.service_account_max_token_expiration // SECOND
    if longest and not HOUR <= longest <= 1 << 32:
        raise UnusableSetting(
            "--service-account-max-token-expiration", "must be between 1h and 2^32 seconds"
        )
    keys = [
        key
        for path in flags.service_account_key_file
        for key in read_public_keys(path, "--service-account-key-file")
    ]
    return ServiceAccountSettings(
        issuers=tuple(flags.service_account_issuer) or (ISSUER,),
        audiences=tuple(flags.api_audiences),
        signing_key=signing_key,
        keys=tuple(keys),
        longest=longest,
        extend=flags.service_account_extend_token_expiration,
        jwks_uri=flags.service_account_jwks_uri,
    )

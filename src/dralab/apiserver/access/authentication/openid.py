"""ID tokens of an OpenID provider: the user they name, by claims that the operator chooses.

Keys come from a file, or from the provider by discovery. Only what the operator names is asked
for, in a thread beside the server: no request waits for the provider.
Sources: k8s.io/apiserver `plugin/pkg/authenticator/token/oidc`; OpenID Connect Discovery 1.0.
"""

import hashlib
import ipaddress
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import orjson

from dralab.apiserver.access.authentication import jwt
from dralab.apiserver.access.authentication.certificates import CREDENTIAL
from dralab.apiserver.access.authentication.chain import Known
from dralab.apiserver.access.authentication.errors import Rejected, UnusableSetting
from dralab.apiserver.access.authentication.keys import BLOCK, read_public_keys
from dralab.apiserver.access.users import User
from dralab.apiserver.outgoing.client import CallClient
from dralab.apiserver.outgoing.targets import Targets, Unreachable
from dralab.files.reading import read
from dralab.kernel.clock import SECOND, Clock
from dralab.values.records import dataclass

logger = logging.getLogger(__name__)

KEPT: Final = 4096  # tokens whose signature is known already
EARLY: Final = 300  # seconds that a token may be used before its time, for clocks that differ
TIMEOUT: Final = 10.0  # seconds for a fetch
LARGEST: Final = 1024 * 1024  # bytes of a document
MOST_KEYS: Final = 100
AGAIN: Final = 10.0  # seconds between fetches at least
FRESH: Final = 600.0  # seconds for which keys are not asked for again unasked
KEYS_FLAG: Final = "--oidc-keys-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdSettings:
    """What tokens must contain, and which claims name the user. Prefixes are put before the claims.

    Without `username_prefix` names get `issuer#`, unless the claim is `email`; `-` is for none.
    """

    issuer: str
    client_id: str
    username_claim: str = "sub"
    username_prefix: str = ""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: Sequence[tuple[str, str]] = ()

    @property
    def name_prefix(self) -> str:
        """What stands before each user's name."""
        if self.username_prefix:
            return "" if self.username_prefix == "-" else self.username_prefix
        return "" if self.username_claim == "email" else f"{self.issuer}#"


Keys = Sequence[jwt.VerificationKey] | None  # None: not fetched yet


class KeySource(Protocol):
    """Where the provider's keys come from."""

    @property
    def keys(self) -> Sequence[jwt.VerificationKey] | None:
        """The keys; None while they are not fetched yet."""
        ...

    def wanted(self) -> None:
        """Ask for the keys to be fetched again soon: a token names an unknown one."""
        ...

    def start(self) -> None:
        """Start keeping them up to date."""
        ...

    def stop(self) -> None:
        """Stop."""
        ...


class OpenIdTokens:
    """Recognises the ID tokens of one provider."""

    def __init__(self, settings: OpenIdSettings, source: KeySource, clock: Clock) -> None:
        self.settings = settings
        self.source = source
        self._clock = clock
        # By digest, the claims of tokens that these keys have verified.
        self._verified: tuple[Keys, dict[bytes, Mapping[str, Any]]] = (None, {})

    def known(self, token: str) -> Known | None:
        """Return the owner of a token; None for one of another issuer. Rejected."""
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        keys = self.source.keys
        if self._verified[0] is not keys:
            self._verified = (keys, {})
        # Another thread may know newer keys already: what these have verified is not for it.
        known = verified[1] if (verified := self._verified)[0] is keys else {}
        claims = known.get(digest)
        if claims is None:
            found = jwt.parsed(token)
            if found is None or found.claims.get("iss") != self.settings.issuer:
                return None
            claims = self._checked(found, keys)
            if len(known) >= KEPT:
                known.clear()
            known[digest] = claims
        now = self._clock.now() / SECOND
        ends, begins = jwt.number(claims, "exp"), jwt.number(claims, "nbf")
        if ends is None or now > ends:
            raise Rejected("oidc: verify token: oidc: token is expired")
        if begins is not None and now < begins - EARLY:
            raise Rejected("oidc: verify token: oidc: current time is before the nbf (not before)")
        return Known(user=self._user(claims))

    def _checked(self, token: jwt.Token, keys: Keys) -> Mapping[str, Any]:
        """Return the claims of a token that the provider issued for this client."""
        if keys is None:
            raise Rejected("oidc: authenticator not initialized")
        if not jwt.is_verified(token, keys):
            self.source.wanted()
            raise Rejected("oidc: verify token: failed to verify signature")
        audiences = jwt.audiences(token.claims)
        if self.settings.client_id not in audiences:
            raise Rejected(
                f'oidc: verify token: oidc: expected audience "{self.settings.client_id}" got '
                f"{audiences}"
            )
        return token.claims

    def _user(self, claims: Mapping[str, Any]) -> User:
        settings = self.settings
        claim = settings.username_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not name:
            raise Rejected(f'oidc: parse username claims "{claim}": claim not present')
        if claim == "email" and claims.get("email_verified", True) is not True:
            raise Rejected("oidc: email not verified")
        for required, value in settings.required_claims:
            if claims.get(required) != value:
                raise Rejected(f"oidc: required claim {required} value does not match")
        groups: Any = claims.get(settings.groups_claim) if settings.groups_claim else None
        listed = [groups] if isinstance(groups, str) else groups or []
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise Rejected(
                f'oidc: parse groups claim "{settings.groups_claim}": not a list of strings'
            )
        identity = claims.get("jti")
        extra = {CREDENTIAL: (f"JTI={identity}",)} if isinstance(identity, str) and identity else {}
        return User(
            name=settings.name_prefix + name,
            groups=tuple(settings.groups_prefix + each for each in listed),
            extra=extra,
        )


class GivenKeys:
    """Keys that the operator gives: a JSON web key set, or public keys as PEM."""

    def __init__(self, keys: Sequence[jwt.VerificationKey]) -> None:
        self.keys: Sequence[jwt.VerificationKey] | None = keys

    @classmethod
    def read(cls, path: Path, algorithms: Sequence[str]) -> "GivenKeys":
        """Return the keys of a file. UnusableSetting."""
        try:
            content = read(path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UnusableSetting(KEYS_FLAG, f"cannot read {path}: {why}") from error
        if BLOCK.search(content):
            # A token names the key as the provider does, which PEM does not say.
            found = [
                jwt.VerificationKey("", key.public, tuple(set(key.algorithms) & set(algorithms)))
                for key in read_public_keys(path, KEYS_FLAG)
            ]
        else:
            try:
                found = jwt.from_jwks(orjson.loads(content), algorithms)
            except (ValueError, jwt.KeyProblem) as error:
                why = f"{path} is neither a JSON web key set nor PEM: {error}"
                raise UnusableSetting(KEYS_FLAG, why) from error
        usable = [key for key in found if key.algorithms]
        if not usable:
            raise UnusableSetting(
                KEYS_FLAG, f"{path} has no key for {', '.join(algorithms)} (--oidc-signing-algs)"
            )
        return cls(usable)

    def wanted(self) -> None:
        """Do nothing: there are no others."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class DiscoveredKeys:
    """The keys that a provider publishes, fetched and kept fresh in a thread.

    `fetch` returns the JSON document at a URL, or raises FetchError.
    """

    def __init__(
        self,
        issuer: str,
        algorithms: Sequence[str],
        fetch: Callable[[str], Any],
        *,
        again: float = AGAIN,
    ) -> None:
        self.keys: Sequence[jwt.VerificationKey] | None = None
        self._issuer = issuer
        self._algorithms = algorithms
        self._fetch = fetch
        self._again = again
        self._wanted = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to fetch."""
        self._over.clear()
        self._thread = threading.Thread(target=self._run, name="oidc-keys", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; a fetch that is under way ends by itself."""
        self._over.set()
        self._wanted.set()

    def wanted(self) -> None:
        """Ask for the keys to be fetched again soon."""
        self._wanted.set()

    def refresh(self) -> None:
        """Fetch the keys now. FetchError: the previous keys are kept."""
        address = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = self._fetch(address)
        if not isinstance(document, dict) or document.get("issuer") != self._issuer:
            said = document.get("issuer") if isinstance(document, dict) else None
            raise FetchError(f"{address} is of the issuer {said!r}, not of {self._issuer!r}")
        uri = document.get("jwks_uri")
        if not isinstance(uri, str) or not uri.startswith("https://"):
            raise FetchError(f"{address}: jwks_uri must be a URL with https")
        try:
            keys = jwt.from_jwks(self._fetch(uri), self._algorithms)
        except jwt.KeyProblem as error:
            raise FetchError(f"{uri}: {error}") from error
        if not keys or len(keys) > MOST_KEYS:
            raise FetchError(f"{uri} has {len(keys)} keys for {', '.join(self._algorithms)}")
        self.keys = keys

    def _run(self) -> None:
        told = ""
        while not self._over.is_set():
            self._wanted.clear()
            pause = FRESH
            try:
                self.refresh()
            except FetchError as error:
                if str(error) != told:
                    told = str(error)
                    logger.warning("no keys of the OpenID provider: %s", told)
                pause = self._again
            self._over.wait(self._again)  # clients cannot make the server ask more often
            if not self._over.is_set():
                self._wanted.wait(pause - self._again)


class FetchError(Exception):
    """A document could not be fetched."""


def fetcher(ca_file: Path | None) -> Callable[[str], Any]:
    """Return a function that fetches JSON over HTTPS: no redirects, 10 seconds, at most 1 MiB."""
    # The operator names the provider, wherever it is.
    anywhere = [ipaddress.ip_network(each) for each in ("0.0.0.0/0", "::/0")]
    targets = Targets(lambda _: None, lambda *_: (), networks=anywhere)

    def fetch(url: str) -> Any:
        client = CallClient()
        try:
            ca = read(ca_file).decode() if ca_file else ""
            parts = urlsplit(url)
            target = replace(targets.of_config({"url": url}), path=parts.path or "/", ca=ca)
            answer = client.call(target, b"", method="GET", query=parts.query, timeout=TIMEOUT)
        except (Unreachable, OSError, ValueError) as error:
            raise FetchError(f"{url}: {error}") from error
        finally:
            client.close()
        if answer.status != 200:
            raise FetchError(f"{url} answers {answer.status}")
        if len(answer.body) > LARGEST:
            raise FetchError(f"{url} has more than {LARGEST} bytes")
        try:
            return orjson.loads(answer.body)
        except ValueError as error:
            raise FetchError(f"{url} is not JSON: {error}") from error

    return fetch

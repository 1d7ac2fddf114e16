"""Tokens of service accounts: signed and verified by the server, and bound to objects.

The subresource `token` of service accounts issues them.
Source: k8s.io/kubernetes `pkg/serviceaccount` (claims.go, jwt.go, openidmetadata.go).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dralab.apiserver.access.authentication import jwt
from dralab.apiserver.access.authentication.chain import Known
from dralab.apiserver.access.authentication.errors import Rejected
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.access.users import User, service_account, service_account_name
from dralab.apiserver.made_once import made_once
from dralab.apiserver.storage import Key, Stored
from dralab.kernel.clock import SECOND, Clock, from_rfc3339
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.access.authentication.jwt import PrivateKey

ISSUER: Final = "https://kubernetes.default.svc"
LIFETIME: Final = 3600  # seconds, where a request names none
# Seconds that a projected volume asks for; such a token lasts for a year, because programs that
# never read it again exist, and says after which time its use is worth a warning.
IN_CLUSTER: Final = 3607
EXTENDED: Final = 365 * 24 * 3600
LEEWAY: Final = 60  # seconds: for clocks that differ, and for tokens whose pod is ending
KEPT: Final = 4096  # tokens whose signature is known already
PREFIX: Final = "authentication.kubernetes.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountSettings:
    """How tokens are signed and which are accepted. Without a key the server makes one.

    Tokens are signed by the first of `issuers` and accepted of all; `keys` are accepted beside
    the `signing_key`'s own, which is asked for once. `audiences` are the names of this server;
    they default to `issuers`.
    """

    issuers: tuple[str, ...] = (ISSUER,)
    audiences: tuple[str, ...] = ()
    signing_key: "Callable[[], PrivateKey] | None" = None
    keys: tuple[jwt.VerificationKey, ...] = ()
    longest: int = 0  # seconds; 0 for no limit
    extend: bool = True
    jwks_uri: str = ""


STANDARD: Final = ServiceAccountSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a token is bound to: `kind` is Pod, Secret or Node; `node` is that of a pod."""

    kind: str
    name: str
    uid: str
    node: tuple[str, str] | None = None  # name, and UID where the node is there


class ServiceAccountTokens:
    """Signs tokens, and verifies them.

    `unique` makes the names of tokens. Signatures are checked once for each token; that its
    account and what it is bound to are still there, each time.
    """

    def __init__(
        self,
        clock: Clock,
        objects: RequestScope,
        unique: Callable[[], str],
        settings: ServiceAccountSettings = STANDARD,
    ) -> None:
        self._clock = clock
        self._objects = objects
        self._unique = unique
        self.settings = settings
        self._verified: dict[bytes, Mapping[str, Any]] = {}

    @property
    def issuer(self) -> str:
        """The issuer of the tokens."""
        return self.settings.issuers[0]

    @property
    def audiences(self) -> Sequence[str]:
        """The names under which this server accepts tokens."""
        return self.settings.audiences or self.settings.issuers

    @made_once
    def _key(self) -> "PrivateKey":
        if self.settings.signing_key is not None:
            return self.settings.signing_key()
        from cryptography.hazmat.primitives.asymmetric import ec

        return ec.generate_private_key(ec.SECP256R1())

    @made_once
    def keys(self) -> Sequence[jwt.VerificationKey]:
        """The public keys of accepted tokens."""
        own = jwt.public_key(self._key.public_key())
        return [own, *(key for key in self.settings.keys if key.key_id != own.key_id)]

    # --- issuing --------------------------------------------------------------------------

    def issue(
        self, account: JsonDict, audiences: Sequence[str], seconds: int, bound: Bound | None = None
    ) -> tuple[str, int]:
        """Return a token for an account and when it ends, in nanoseconds since the epoch."""
        metadata = account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        now = self._clock.now() // SECOND
        if self.settings.longest:
            seconds = min(seconds, self.settings.longest)
        about: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": metadata["uid"]},
        }
        if bound is not None:
            about[bound.kind.lower()] = {"name": bound.name, "uid": bound.uid}
            if bound.node is not None:
                node, uid = bound.node
                about["node"] = {"name": node, "uid": uid} if uid else {"name": node}
        lasts = seconds
        if self.settings.extend and seconds == IN_CLUSTER and set(audiences) <= {*self.audiences}:
            about["warnafter"] = now + seconds
            lasts = EXTENDED
        claims = {
            "aud": list(audiences),
            "exp": now + lasts,
            "iat": now,
            "iss": self.issuer,
            "jti": self._unique(),
            "kubernetes.io": about,
            "nbf": now,
            "sub": service_account_name(namespace, name),
        }
        return jwt.signed(claims, self._key), (now + seconds) * SECOND

    # --- verifying ------------------------------------------------------------------------

    def known(self, token: str) -> Known | None:
        """Return the owner of a token; None if it is of another issuer.

        Rejected: it is forged or expired, or its account or bound object is gone.
        """
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        claims = self._verified.get(digest)
        if claims is None:
            found = jwt.parsed(token)
            if found is None or found.claims.get("iss") not in self.settings.issuers:
                return None
            if not jwt.is_verified(found, self.keys):
                raise Rejected("failed to verify the signature of a service account token")
            claims = found.claims
            if len(self._verified) >= KEPT:
                self._verified.clear()
            self._verified[digest] = claims
        self._check_times(claims)
        return Known(user=self._user(claims), audiences=jwt.audiences(claims))

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now = self._clock.now() / SECOND
        ends, begins = jwt.number(claims, "exp"), jwt.number(claims, "nbf")
        if ends is None or now > ends + LEEWAY:
            raise Rejected("service account token has expired")
        if begins is not None and now < begins - LEEWAY:
            raise Rejected("service account token is not valid yet")

    def _user(self, claims: Mapping[str, Any]) -> User:
        about = claims.get("kubernetes.io")
        account = about.get("serviceaccount") if isinstance(about, dict) else None
        if not isinstance(about, dict) or not isinstance(account, dict):
            raise Rejected("service account token is not bound to a service account")
        namespace, name = _text(about, "namespace"), _text(account, "name")
        if claims.get("sub") != service_account_name(namespace, name):
            raise Rejected("service account token names two subjects")
        found = self._objects.find(Key("serviceaccounts", namespace, name))
        if found is None:
            raise Rejected(f'serviceaccounts "{name}" not found')
        uid = _uid(found)
        if uid != account.get("uid"):
            raise Rejected(
                f"service account UID ({uid}) does not match claim ({account.get('uid')})"
            )
        if self._is_gone(found):
            raise Rejected(f"service account {namespace}/{name} has been deleted")
        extra: dict[str, tuple[str, ...]] = {}
        if isinstance(identity := claims.get("jti"), str) and identity:
            extra[f"{PREFIX}credential-id"] = (f"JTI={identity}",)
        self._check_bound(about, namespace, extra)
        user = service_account(namespace, name, uid)
        return User(name=user.name, groups=user.groups, uid=uid, extra=extra)

    def _check_bound(
        self, about: Mapping[str, Any], namespace: str, extra: dict[str, tuple[str, ...]]
    ) -> None:
        """Refuse a token whose pod, secret or node is gone; note the pod and the node."""
        for kind in ("secret", "pod"):
            if isinstance(bound := about.get(kind), dict):
                self._check_is_there(f"{kind}s", namespace, bound)
        node = about.get("node")
        if isinstance(pod := about.get("pod"), dict):
            extra[f"{PREFIX}pod-name"] = (_text(pod, "name"),)
            extra[f"{PREFIX}pod-uid"] = (_text(pod, "uid"),)
        elif isinstance(node, dict):
            self._check_is_there("nodes", "", node)
        if isinstance(node, dict):
            extra[f"{PREFIX}node-name"] = (_text(node, "name"),)
            if "uid" in node:
                extra[f"{PREFIX}node-uid"] = (_text(node, "uid"),)

    def _check_is_there(self, resource: str, namespace: str, bound: Mapping[str, Any]) -> None:
        found = self._objects.find(Key(resource, namespace, _text(bound, "name")))
        if found is None or self._is_gone(found):
            raise Rejected("service account token has been invalidated")
        if _uid(found) != bound.get("uid"):
            kind = resource.removesuffix("s")
            raise Rejected(
                f"{kind} UID ({_uid(found)}) does not match service account {kind} ref claim "
                f"({bound.get('uid')})"
            )

    def _is_gone(self, stored: Stored) -> bool:
        """Return whether an object's deletion began longer ago than clocks may differ."""
        deleted = stored.value["metadata"].get("deletionTimestamp")
        return bool(deleted) and from_rfc3339(deleted) < self._clock.now() - LEEWAY * SECOND

    # --- publishing -----------------------------------------------------------------------

    def configuration(self, address: str) -> dict[str, Any]:
        """Return the OpenID discovery document of a server at an address."""
        used = {key.algorithms[0] for key in self.keys}
        return {
            "issuer": self.issuer,
            "jwks_uri": self.settings.jwks_uri or f"https://{address}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted(used),
        }

    def key_set(self) -> dict[str, Any]:
        """Return the public keys as a JSON web key set."""
        return {"keys": [jwt.as_jwk(key) for key in self.keys]}


def _uid(stored: Stored) -> str:
    return str(stored.value["metadata"].get("uid"))


def _text(claims: Mapping[str, Any], name: str) -> str:
    found = claims.get(name)
    if not isinstance(found, str):
        raise Rejected("service account token is malformed")
    return found

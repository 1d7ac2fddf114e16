"""Tokens of service accounts: signed by the server, and known to it again.

Source: k8s.io/kubernetes `pkg/serviceaccount`; RFC 7519 with ES256.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import orjson

from dralab.apiserver.authentication.chain import Known
from dralab.apiserver.authentication.errors import Rejected
from dralab.apiserver.users import service_account, service_account_name
from dralab.kernel.clock import SECOND, Clock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

ISSUER: Final = "https://kubernetes.default.svc"
LIFETIME: Final = 3600


class TokenIssuer:
    """Signs tokens with a key that lives as long as the server, made when it is first needed.

    So is `cryptography` imported: most servers never sign one, and all of them start faster.
    """

    def __init__(self, clock: Clock, *, issuer: str = ISSUER) -> None:
        self.clock = clock
        self.issuer = issuer

    @cached_property
    def _key(self) -> "ec.EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec

        return ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def key_id(self) -> str:
        """The name of the key."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = self._key.public_key()
        data = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _text(hashlib.sha256(data).digest())

    def issue(
        self, namespace: str, account: str, uid: str, audiences: Sequence[str], seconds: int
    ) -> tuple[str, int]:
        """Return a token for an account and when it ends, in nanoseconds since the epoch."""
        from cryptography.hazmat.primitives.asymmetric import ec, utils
        from cryptography.hazmat.primitives.hashes import SHA256

        now = self.clock.now() // SECOND
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": account, "uid": uid},
            },
            "nbf": now,
            "sub": service_account_name(namespace, account),
        }
        head = _text(orjson.dumps({"alg": "ES256", "kid": self.key_id}))
        signed = f"{head}.{_text(orjson.dumps(claims))}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return f"{signed}.{_text(signature)}", (now + seconds) * SECOND

    def known(self, token: str) -> Known | None:
        """Return whose a token is; None where it is none of ours. Rejected: it is over."""
        claims = self._claims(token)
        if claims is None:
            return None
        if claims.get("exp", 0) * SECOND <= self.clock.now():
            raise Rejected("service account token has expired")
        _, _, namespace, account = claims["sub"].split(":")
        uid = claims["kubernetes.io"]["serviceaccount"]["uid"]
        return Known(user=service_account(namespace, account, uid), audiences=claims["aud"])

    def _claims(self, token: str) -> dict[str, Any] | None:
        head, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        if not signature:
            return None
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec, utils
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            raw = _bytes(signature)
            numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
            encoded = utils.encode_dss_signature(*numbers)
            self._key.public_key().verify(encoded, f"{head}.{body}".encode(), ec.ECDSA(SHA256()))
            found: dict[str, Any] = orjson.loads(_bytes(body))
        except (InvalidSignature, ValueError, binascii.Error):
            return None
        return found

    def configuration(self) -> dict[str, Any]:
        """Return the OpenID discovery document."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def keys(self) -> dict[str, Any]:
        """Return the public key as a JSON web key set."""
        numbers = self._key.public_key().public_numbers()
        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "EC",
                    "kid": self.key_id,
                    "crv": "P-256",
                    "alg": "ES256",
                    "x": _text(numbers.x.to_bytes(32, "big")),
                    "y": _text(numbers.y.to_bytes(32, "big")),
                }
            ]
        }


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

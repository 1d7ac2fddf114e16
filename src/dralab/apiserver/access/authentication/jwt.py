"""JSON Web Tokens in their compact form: signed with RSA or elliptic curves, never otherwise.

Callers interpret the claims. `cryptography` is imported with the first key.
Sources: RFC 7515 (form), 7517 (key sets), 7518 (algorithms), 7519 (claims).
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from dralab.values.records import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

    PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey
    PublicKey = RSAPublicKey | EllipticCurvePublicKey

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
CURVE_NAMES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
ALGORITHMS: Final = (*RSA_ALGORITHMS, *CURVES)
SMALLEST_RSA: Final = 2048  # bits, by RFC 7518
LONGEST: Final = 64 * 1024  # characters of a token; heads of requests are no longer


class KeyProblem(Exception):  # noqa: N818 - a fact about a key that was given
    """A key cannot be used; `str` says why, without the key."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was parsed, but not verified."""

    head: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key: its name, and the algorithms that it may be used with."""

    key_id: str
    public: "PublicKey"
    algorithms: tuple[str, ...]

    def verifies(self, token: Token) -> bool:
        """Return whether the holder of the private key has signed a token."""
        algorithm = token.head.get("alg")
        if algorithm not in self.algorithms:
            return False
        from cryptography.exceptions import InvalidSignature

        try:
            _verify(self.public, algorithm, token)
        except (InvalidSignature, ValueError):
            return False
        return True


def parsed(text: str) -> Token | None:
    """Return what a token says; None if it is not a token of this form."""
    if len(text) > LONGEST or text.count(".") != 2:
        return None
    head, body, signature = text.split(".")
    try:
        found = Token(
            orjson.loads(_bytes(head)),
            orjson.loads(_bytes(body)),
            f"{head}.{body}".encode("ascii"),
            _bytes(signature),
        )
    except ValueError:
        return None
    if not isinstance(found.head, dict) or not isinstance(found.claims, dict):
        return None
    # `crit` lists what a reader has to understand: none of it is known here.
    return None if "crit" in found.head else found


def is_verified(token: Token, keys: Iterable[VerificationKey]) -> bool:
    """Return whether one of the keys has signed a token; its `kid` chooses among named keys."""
    name = token.head.get("kid")
    return any(
        key.verifies(token) for key in keys if not name or not key.key_id or name == key.key_id
    )


def number(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a claim that is a time, in seconds since the epoch; None if it is not a number."""
    found = claims.get(name)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def audiences(claims: Mapping[str, Any]) -> list[str]:
    """Return the audiences of a token: one name or a list of names."""
    found = claims.get("aud")
    return [
        name for name in (found if isinstance(found, list) else [found]) if isinstance(name, str)
    ]


def signed(claims: Mapping[str, Any], key: "PrivateKey") -> str:
    """Return claims as a token."""
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    public = public_key(key.public_key())
    algorithm = public.algorithms[0]
    head = encoded(orjson.dumps({"alg": algorithm, "kid": public.key_id}))
    text = f"{head}.{encoded(orjson.dumps(claims))}"
    data = text.encode()
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(data, padding.PKCS1v15(), _hash(algorithm))
    else:
        size = (key.curve.key_size + 7) // 8
        r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(_hash(algorithm))))
        signature = r.to_bytes(size, "big") + s.to_bytes(size, "big")
    return f"{text}.{encoded(signature)}"


def public_key(public: "PublicKey") -> VerificationKey:
    """Return a key with the name that a real server gives it. KeyProblem."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < SMALLEST_RSA:
            raise KeyProblem(
                f"an RSA key with {public.key_size} bits: at least {SMALLEST_RSA} are needed"
            )
        algorithms: tuple[str, ...] = RSA_ALGORITHMS
    elif isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in CURVE_NAMES:
        curve = CURVE_NAMES[public.curve.name]
        algorithms = tuple(name for name, found in CURVES.items() if found == curve)
    else:
        raise KeyProblem("the key is neither RSA nor of the curves P-256, P-384, P-521")
    data = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return VerificationKey(encoded(hashlib.sha256(data).digest()), public, algorithms)


def as_jwk(key: VerificationKey) -> dict[str, str]:
    """Return a public key as a JSON web key."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    found = {"use": "sig", "kid": key.key_id, "alg": key.algorithms[0]}
    if isinstance(key.public, rsa.RSAPublicKey):
        numbers = key.public.public_numbers()
        return found | {
            "kty": "RSA",
            "n": encoded(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": encoded(numbers.e.to_bytes((numbers.e.bit_length() + 7) // 8, "big")),
        }
    size, point = (key.public.curve.key_size + 7) // 8, key.public.public_numbers()
    return found | {
        "kty": "EC",
        "crv": CURVE_NAMES[key.public.curve.name],
        "x": encoded(point.x.to_bytes(size, "big")),
        "y": encoded(point.y.to_bytes(size, "big")),
    }


def from_jwks(document: object, algorithms: Sequence[str] = ALGORITHMS) -> list[VerificationKey]:
    """Return the keys for signatures of a JSON web key set; those of other kinds are left out.

    KeyProblem where it is not a key set.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise KeyProblem("not a JSON web key set: `keys` must be a list")
    found = []
    for each in listed:
        if not isinstance(each, dict) or each.get("use") not in (None, "sig"):
            continue
        try:
            key = public_key(_from_jwk(each))
        except (KeyError, TypeError, ValueError, KeyProblem):
            continue
        meant = [each["alg"]] if isinstance(each.get("alg"), str) else key.algorithms
        may = tuple(name for name in key.algorithms if name in algorithms and name in meant)
        if may:
            name = each.get("kid")
            found.append(VerificationKey(name if isinstance(name, str) else "", key.public, may))
    return found


def _from_jwk(key: Mapping[str, Any]) -> "PublicKey":
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    def whole(name: str) -> int:
        return int.from_bytes(_bytes(key[name]), "big")

    if key["kty"] == "RSA":
        return rsa.RSAPublicNumbers(whole("e"), whole("n")).public_key()
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    if key["kty"] != "EC":
        raise KeyProblem(f"unknown key type {key['kty']!r}")
    return ec.EllipticCurvePublicNumbers(whole("x"), whole("y"), curves[key["crv"]]).public_key()


def _verify(public: "PublicKey", algorithm: str, token: Token) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    digest = _hash(algorithm)
    if isinstance(public, rsa.RSAPublicKey):
        pad: Any = padding.PKCS1v15()
        if algorithm.startswith("PS"):
            pad = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
        public.verify(token.signature, token.signed, pad, digest)
        return
    size = (public.curve.key_size + 7) // 8
    if len(token.signature) != 2 * size:
        raise InvalidSignature
    numbers = (
        int.from_bytes(token.signature[:size], "big"),
        int.from_bytes(token.signature[size:], "big"),
    )
    public.verify(utils.encode_dss_signature(*numbers), token.signed, ec.ECDSA(digest))


def _hash(algorithm: str) -> Any:
    from cryptography.hazmat.primitives import hashes

    found: dict[str, Any] = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
    return found[algorithm[2:]]()


def encoded(data: bytes) -> str:
    """Return bytes in base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Return the bytes of such a text. ValueError: it is not one, or not in its only spelling."""
    if "=" in text or "+" in text or "/" in text:
        raise ValueError("not URL-safe base64")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    if encoded(found) != text:
        raise ValueError("not URL-safe base64")
    return found

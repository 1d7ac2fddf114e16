"""Keys in PEM files: those that sign tokens, and those that check them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dralab.apiserver.access.authentication import jwt
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.files.reading import read

if TYPE_CHECKING:
    from dralab.apiserver.access.authentication.jwt import PrivateKey, PublicKey

BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)
KINDS: Final = ("PUBLIC KEY", "PRIVATE KEY", "CERTIFICATE")


def read_private_key(path: Path, flag: str) -> "PrivateKey":
    """Return the one private key of a file. UnusableSetting."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = load_pem_private_key(_content(path, flag), password=None)
        jwt.public_key(found.public_key())  # type: ignore[arg-type]  # it refuses other kinds
    except (ValueError, TypeError) as error:
        raise UnusableSetting(flag, f"{path} contains no PEM private key") from error
    except jwt.KeyProblem as error:
        raise UnusableSetting(flag, f"{path}: {error}") from error
    return found  # type: ignore[return-value]  # as above


def read_public_keys(path: Path, flag: str) -> list[jwt.VerificationKey]:
    """Return the public keys of a file, which may hold private ones and certificates, too.

    UnusableSetting.
    """
    try:
        found = [
            jwt.public_key(_public(block.group(1), block.group(0)))
            for block in BLOCK.finditer(_content(path, flag))
            if block.group(1).decode().endswith(KINDS)
        ]
    except (ValueError, TypeError) as error:
        raise UnusableSetting(flag, f"{path}: cannot read a key") from error
    except jwt.KeyProblem as error:
        raise UnusableSetting(flag, f"{path}: {error}") from error
    if not found:
        raise UnusableSetting(flag, f"{path} contains no PEM-encoded RSA or ECDSA key")
    return found


def _public(label: bytes, block: bytes) -> "PublicKey":
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,
        load_pem_public_key,
    )

    if label == b"CERTIFICATE":
        return x509.load_pem_x509_certificate(block).public_key()  # type: ignore[return-value]
    if label.endswith(b"PRIVATE KEY"):
        return load_pem_private_key(block, password=None).public_key()  # type: ignore[return-value]
    return load_pem_public_key(block)  # type: ignore[return-value]  # others are refused


def _content(path: Path, flag: str) -> bytes:
    try:
        return read(path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UnusableSetting(flag, f"cannot read {path}: {why}") from error

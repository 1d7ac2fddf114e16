"""Users by client certificate: the common name is the user's name, organisations are its groups.

TLS has asked for the certificate and has checked its chain, dates and purpose; here its issuer and
dates are checked again, since a connection lasts and TLS may trust other authorities as well.
Sources: k8s.io/apiserver `authentication/request/x509`.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dralab.apiserver.access.authentication.errors import Rejected, UnusableSetting
from dralab.apiserver.access.users import User
from dralab.files.reading import read
from dralab.kernel.clock import SECOND, Clock

if TYPE_CHECKING:
    from cryptography import x509

CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
UID: Final = "1.3.6.1.4.1.57683.2"  # of subjects (AllowParsingUserUIDFromCertAuth)
KEPT: Final = 4096  # certificates that are known already


class ClientCertificates:
    """Recognises certificates that were signed directly by one of `authorities` (DER).

    An intermediate authority has to be in the list itself.
    """

    def __init__(self, authorities: Sequence[bytes], clock: Clock) -> None:
        self.authorities = tuple(authorities)
        self._clock = clock
        self._parsed: list[x509.Certificate] | None = None
        # The user, and from when until when (seconds since the epoch).
        self._known: dict[bytes, tuple[User | None, float, float]] = {}

    def user_of(self, certificate: bytes) -> User | None:
        """Return the user of a certificate (DER); None if it has no common name. Rejected."""
        digest = hashlib.sha256(certificate).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._checked(certificate, digest)
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[digest] = found
        user, begins, ends = found
        if not begins <= self._clock.now() / SECOND <= ends:
            raise Rejected("x509: certificate has expired or is not yet valid")
        return user

    def _checked(self, certificate: bytes, digest: bytes) -> tuple[User | None, float, float]:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        try:
            found = x509.load_der_x509_certificate(certificate)
            if not any(_is_issued(found, each) for each in self._loaded()):
                raise Rejected("x509: certificate signed by unknown authority")
            purposes = [
                purpose
                for each in found.extensions
                if isinstance(each.value, x509.ExtendedKeyUsage)
                for purpose in each.value
            ]
            names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            groups = found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            uids = found.subject.get_attributes_for_oid(x509.ObjectIdentifier(UID))
        except (ValueError, x509.DuplicateExtension) as error:
            raise Rejected(f"x509: {error}") from error
        fit = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
        # A certificate without a purpose is valid for all of them, as in Go.
        if purposes and fit.isdisjoint(purposes):
            raise Rejected("x509: certificate specifies an incompatible key usage")
        if len(uids) > 1:
            raise Rejected("x509: expected 1 UID, found more")
        begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
        user = None
        if names and names[-1].value:
            user = User(
                name=str(names[-1].value),
                groups=tuple(str(group.value) for group in groups),
                uid=str(uids[0].value) if uids else "",
                extra={CREDENTIAL: (f"X509SHA256={digest.hex()}",)},
            )
        return user, begins.timestamp(), ends.timestamp()

    def _loaded(self) -> "list[x509.Certificate]":
        if self._parsed is None:
            from cryptography import x509

            self._parsed = [x509.load_der_x509_certificate(each) for each in self.authorities]
        return self._parsed


def _is_issued(certificate: "x509.Certificate", authority: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def read_authorities(path: Path, flag: str) -> list[bytes]:
    """Return the certificates (DER) of a PEM file. UnusableSetting."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        found = x509.load_pem_x509_certificates(read(path))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UnusableSetting(flag, f"cannot read {path}: {why}") from error
    except ValueError as error:
        raise UnusableSetting(flag, f"{path} contains no PEM certificate") from error
    return [each.public_bytes(Encoding.DER) for each in found]

"""The certificate authority of a trial: created when the first certificate is signed, in memory."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography import x509

# Before the time at which trials begin, and long after the longest of them.
BEGIN: Final = datetime(2025, 1, 1, tzinfo=UTC)
LIFETIME: Final = timedelta(days=3650)


class TrialAuthority:
    """Signs the requests of one process; nothing outside of trials trusts it."""

    def load(self) -> "tuple[x509.Certificate, Any]":
        """Return the certificate and the private key."""
        return _made()


@cache
def _made() -> "tuple[x509.Certificate, Any]":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralab trial CA")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(BEGIN + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key

"""Authorities and client certificates for tests."""

import base64
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

NOW = datetime(2027, 1, 15, tzinfo=UTC)
UID = ObjectIdentifier("1.3.6.1.4.1.57683.2")


class Authority:
    def __init__(self, name: str = "test-ca", now: datetime = NOW) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.now = now
        self.certificate = (
            self._builder(self.name, self.key, 3650)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @classmethod
    def of(cls, certificate: bytes, key: bytes, now: datetime) -> "Authority":
        """Return the authority whose certificate and key these are, in PEM."""
        found = cls.__new__(cls)
        found.key = load_pem_private_key(key, None)
        found.certificate = x509.load_pem_x509_certificate(certificate)
        found.name, found.now = found.certificate.subject, now
        return found

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        name="alice",
        groups=(),
        *,
        uid="",
        usage=ExtendedKeyUsageOID.CLIENT_AUTH,
        days=30,
        names=(),
    ):
        """Return a certificate and its key; `names` are those of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        if name:
            parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        if uid:
            parts.append(x509.NameAttribute(UID, uid))
        made = self._builder(x509.Name(parts), key, days)
        if usage is not None:
            made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
        return made.sign(self.key, hashes.SHA256()), key

    def _builder(self, subject, key, days):
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - timedelta(hours=1))
            .not_valid_after(self.now + timedelta(days=days))
        )


def request(name="alice", groups=(), names=(), key=None) -> str:
    """Return what `spec.request` of a CertificateSigningRequest holds: base64 of PEM."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    pem = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return base64.b64encode(pem).decode()


def der(certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def pem_pair(certificate, key) -> bytes:
    """Return certificate and key as the one file that TLS clients load."""
    return certificate.public_bytes(Encoding.PEM) + key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )

"""A private CA, a server certificate signed by it, and a token.

They are created once per directory, so that kubeconfigs stay valid when a server restarts. Only
this module imports `cryptography`, so that plain HTTP starts without it.
"""

import ipaddress
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dralab.apiserver.http.connections.listening import ServingError
from dralab.apiserver.http.connections.serving import Certificate
from dralab.files.reading import read, read_own
from dralab.kernel.clock import SECOND

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

TEN_YEARS: Final = timedelta(days=3650)
FRONT_PROXY: Final = "front-proxy-client"  # kubeadm's name for it
Times = tuple[datetime, datetime]  # a certificate is valid at both, and long after
# The names of the server inside the cluster, and those for everyone else.
NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
)


def certificate(
    directory: Path, now: int, names: Iterable[str] = (), *, clients: int | None = None
) -> Certificate:
    """Return the certificate of a directory, created if missing for localhost and `names`.

    `now` is in nanoseconds since the epoch; `clients` is what the clients' clocks show, where that
    is another time: it is valid at both. ServingError if the directory cannot be used.
    """
    found = Certificate(
        certificate=directory / "server.crt", key=directory / "server.key", ca=directory / "ca.crt"
    )
    wanted = sorted({*NAMES, *names})
    listing = directory / "names"
    with _keeping(f"certificates in {directory}"):
        if listing.exists() and read_own(listing).decode().split() == wanted:
            for file in (found.certificate, found.key, found.ca):
                read_own(file)  # or it is not what the server would present
            return found
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(directory, found, _validity(now, clients), wanted)
        _write(listing, "\n".join(wanted).encode())
    return found


def front_proxy(directory: Path, now: int, *, clients: int | None = None) -> Certificate:
    """Return the client certificate that aggregated API servers know this server by.

    Made at first, with an authority of its own, whose key is not kept. ServingError.
    """
    found = Certificate(
        certificate=directory / "front-proxy-client.crt",
        key=directory / "front-proxy-client.key",
        ca=directory / "front-proxy-ca.crt",
    )
    with _keeping(f"certificates in {directory}"):
        if all(file.exists() for file in (found.certificate, found.key, found.ca)):
            for file in (found.certificate, found.key, found.ca):
                read_own(file)
            return found
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_front_proxy(found, _validity(now, clients))
    return found


def operators_certificate(certificate: Path, key: Path) -> Certificate:
    """Return an operator's certificate, with its chain, and its key. ServingError: unusable.

    Clients are told to trust the chain itself: its authority, where that is in it.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for file in (certificate, key):
            read(file)  # OpenSSL would wait for a pipe
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        why = (error.reason or str(error)).lower().replace("_", " ")
        raise ServingError(f"{certificate} and {key} cannot be used for TLS: {why}") from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ServingError(f"cannot read {certificate} or {key}: {why}") from error
    return Certificate(certificate=certificate, key=key, ca=certificate)


def token(directory: Path) -> str:
    """Return the administrator's bearer token of a directory, created if missing."""
    file = directory / "token"
    with _keeping(f"the token in {directory}"):
        if not file.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(file, secrets.token_urlsafe(32).encode())
        found = read_own(file).decode().strip()
    if not found:
        # Without a token, every client would be an administrator.
        raise ServingError(f"{file} is empty: delete it to create a new token")
    return found


def signing_key(directory: Path) -> "EllipticCurvePrivateKey":
    """Return a directory's key for service account tokens, created if missing. ServingError."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    file = directory / "sa.key"
    with _keeping(f"the key of service accounts in {file}"):
        if not file.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(file, _pem(ec.generate_private_key(ec.SECP256R1())))
        content = read_own(file)
    try:
        found = load_pem_private_key(content, password=None)
    except ValueError as error:
        raise ServingError(f"{file} is damaged: delete it to create a new key") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ServingError(f"{file} is not an ECDSA key: delete it to create a new key")
    return found


@contextmanager
def _keeping(what: str) -> Iterator[None]:
    """Say of what a directory cannot be used for. ServingError."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ServingError(f"cannot keep {what}: {why}") from error


def _validity(now: int, clients: int | None) -> Times:
    instants = sorted((now, now if clients is None else clients))
    first, last = (datetime.fromtimestamp(one // SECOND, UTC) for one in instants)
    return first, last


def _make_front_proxy(files: Certificate, times: Times) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "front-proxy-ca")])
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, FRONT_PROXY)])
    made = (
        _certificate(subject, issuer, key, times)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )
    _write(files.key, _pem(key))
    _write(files.certificate, _signed(made, authority))
    _write(files.ca, _signed(_of_authority(issuer, authority, times), authority))


def _make(directory: Path, files: Certificate, times: Times, names: Iterable[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority = _authority(directory, files, times)
    own = x509.load_pem_x509_certificate(read_own(files.ca))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralab")])
    made = (
        _certificate(subject, own.subject, key, times)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )
    _write(files.key, _pem(key))
    _write(files.certificate, _signed(made, authority))


def _authority(directory: Path, files: Certificate, times: Times) -> "EllipticCurvePrivateKey":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import NameOID

    file = directory / "ca.key"
    if file.exists() and files.ca.exists():
        try:
            found = load_pem_private_key(read_own(file), password=None)
        except ValueError as error:
            told = f"{file} is damaged: delete it to create a new CA"
            raise ServingError(told) from error
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralab CA")])
    made = _of_authority(subject, key, times)
    _write(file, _pem(key))
    _write(files.ca, _signed(made, key))
    return key


def _of_authority(
    subject: "x509.Name", key: "EllipticCurvePrivateKey", times: Times
) -> "x509.CertificateBuilder":
    from cryptography import x509

    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _certificate(subject, subject, key, times)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _certificate(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", times: Times
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(times[0] - timedelta(hours=1))
        .not_valid_after(times[1] + TEN_YEARS)
    )


def _signed(made: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(text: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(path: Path, content: bytes) -> None:
    # Written aside and moved: whole or not at all, and never into a file of another user.
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

"""A real etcd over TLS: servers trust its authority, and it asks for their certificate."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

pytest.importorskip("grpc")

from dralab.apiserver.http.connections import tls
from dralab.apiserver.storage import Key, StorageUnavailable
from dralab.apiserver.storage.etcd import EtcdAddress, EtcdStore
from dralab.apiserver.storage.etcd import client as etcd_client
from dralab.apiserver.storage.etcd.revisions import revision_of
from dralab.kernel.clock import WallClock
from etcds import Etcd

pytestmark = pytest.mark.conformance


def client_certificate(place: Path) -> tuple[str, str]:
    """Make a certificate that signs itself; return its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralab")])
    now = datetime.fromtimestamp(WallClock().now() / 1e9, UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (place / "client.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (place / "client.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(place / "client.crt"), str(place / "client.key")


REFUSED = """
import sys
from dralab.apiserver.storage import StorageUnavailable
from dralab.apiserver.storage.etcd import EtcdAddress, EtcdStore, client
client.PATIENCE = 0.5
try:
    EtcdStore(EtcdAddress.read(sys.argv[1], cafile=sys.argv[2]))
except StorageUnavailable:
    print("refused")
"""


def test_both_ends_show_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tls.certificate(tmp_path / "server", WallClock().now())
    other = tls.certificate(tmp_path / "other", WallClock().now())
    certfile, keyfile = client_certificate(tmp_path)
    options = (
        f"--cert-file={server.certificate}",
        f"--key-file={server.key}",
        "--client-cert-auth",
        f"--trusted-ca-file={certfile}",
        "--unsafe-no-fsync",
    )
    own = {"certfile": certfile, "keyfile": keyfile}
    with Etcd(tmp_path, scheme="https", options=options) as etcd:
        store = EtcdStore(EtcdAddress.read(etcd.url, cafile=str(server.ca), **own))
        made = store.create(Key("pods", "default", "a"), {"metadata": {}})
        assert revision_of(made.revision) == revision_of(store.revision)
        store.close()
        monkeypatch.setattr(etcd_client, "PATIENCE", 0.5)
        for refused in (
            {"cafile": str(other.ca), **own},  # an authority that did not sign etcd's
            {"cafile": str(server.ca)},  # no certificate of its own
            {},  # no TLS
        ):
            with pytest.raises(StorageUnavailable, match="does not answer"):
                EtcdStore(EtcdAddress.read(etcd.url, **refused))
        asked = subprocess.run(
            [sys.executable, "-c", REFUSED, etcd.url, str(other.ca)],
            capture_output=True, text=True, check=True, timeout=150,
        )  # fmt: skip
    assert (asked.stdout, asked.stderr) == ("refused\n", "")  # nor what grpcio logs

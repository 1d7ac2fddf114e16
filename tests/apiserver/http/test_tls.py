import socket
import ssl
import tracemalloc
from pathlib import Path

import pytest

from dralab.apiserver.access.authentication.settings import AuthenticationFlags
from dralab.apiserver.http.connections.listening import ServingError
from dralab.apiserver.http.connections.serving import Certificate
from dralab.apiserver.http.connections.tls import certificate, front_proxy, token
from dralab.apiserver.own_address import with_front_proxy
from dralab.cluster import Cluster, Options
from dralab.kernel.clock import WallClock
from waiting import until

# The machine's TLS library looks at the machine's clock.
NOW = WallClock().now()


def shake_hands(server_side: ssl.SSLContext, client_side: ssl.SSLContext, name: str) -> None:
    """Let both sides talk in memory until they agree."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(back, there, server_hostname=name)
    server = server_side.wrap_bio(there, back, server_side=True)
    open_ends = [client, server]
    while open_ends:
        for end in tuple(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                pass


def test_clients_that_trust_the_ca_trust_the_server(tmp_path: Path) -> None:
    files = certificate(tmp_path, NOW, ["lab.example"])
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(files.certificate, files.key)
    client_side = ssl.create_default_context(cafile=str(files.ca))
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("127.0.0.1", "localhost", "kubernetes.default.svc", "lab.example"):
        shake_hands(server_side, client_side, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_side, client_side, "other.example")


def test_a_directory_keeps_its_authority_and_its_token(tmp_path: Path) -> None:
    place = tmp_path / "tls"
    first, word = certificate(place, NOW), token(place)
    ca, cert = first.ca.read_bytes(), first.certificate.read_bytes()
    assert certificate(place, NOW + 1) == first
    assert (first.ca.read_bytes(), first.certificate.read_bytes(), token(place)) == (ca, cert, word)
    certificate(place, NOW, ["other.example"])
    assert first.ca.read_bytes() == ca
    assert first.certificate.read_bytes() != cert
    assert len(word) > 30
    assert all(file.stat().st_mode & 0o077 == 0 for file in place.iterdir())


def test_a_place_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for make in (lambda place: certificate(place, NOW), token):
        with pytest.raises(ServingError, match=r"cannot keep .* in .*/file/tls: "):
            make(tmp_path / "file" / "tls")


def test_a_token_that_was_lost_is_not_taken_for_none(tmp_path: Path) -> None:
    """An empty token would let everybody in."""
    token(tmp_path)
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ServingError, match=r"/token is empty: delete it"):
        token(tmp_path)
    (tmp_path / "token").unlink()
    assert len(token(tmp_path)) > 30


def test_a_key_is_not_written_into_a_file_of_somebody_else(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("x")
    theirs.chmod(0o666)
    (tmp_path / "server.key").symlink_to(theirs)
    files = certificate(tmp_path, NOW)
    assert theirs.read_text() == "x"
    assert files.key.stat().st_mode & 0o077 == 0


def test_an_authority_that_was_damaged_is_named(tmp_path: Path) -> None:
    certificate(tmp_path, NOW)
    (tmp_path / "ca.key").write_text("x")
    with pytest.raises(ServingError, match=r"/ca.key is damaged: delete it"):
        certificate(tmp_path, NOW, ["other.example"])


def test_an_aggregated_server_knows_the_front_proxy_by_its_own_authority(tmp_path: Path) -> None:
    files, own = front_proxy(tmp_path, NOW), certificate(tmp_path, NOW)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca))
    server_side.load_cert_chain(own.certificate, own.key)
    server_side.verify_mode = ssl.CERT_REQUIRED
    server_side.verify_flags |= ssl.VERIFY_X509_STRICT
    client_side = ssl.create_default_context(cafile=str(own.ca))
    client_side.load_cert_chain(files.certificate, files.key)
    shake_hands(server_side, client_side, "localhost")
    assert files.key.stat().st_mode & 0o077 == 0
    assert not list(tmp_path.glob("front-proxy-ca.key"))
    before = files.ca.read_bytes()
    assert front_proxy(tmp_path, NOW + 1) == files
    assert files.ca.read_bytes() == before


def test_the_operators_own_front_proxy_counts(tmp_path: Path) -> None:
    flags, outgoing = with_front_proxy(
        AuthenticationFlags(), None, lambda: front_proxy(tmp_path, NOW)
    )
    assert flags.requestheader_client_ca_file == tmp_path / "front-proxy-ca.crt"
    assert flags.requestheader_allowed_names == ("front-proxy-client",)
    assert outgoing is not None
    assert outgoing.proxy_certificate == (
        str(tmp_path / "front-proxy-client.crt"), str(tmp_path / "front-proxy-client.key"),
    )  # fmt: skip

    def unasked() -> Certificate:
        raise AssertionError("made for nothing")

    assert with_front_proxy(flags, None, unasked) == (flags, None)
    assert with_front_proxy(AuthenticationFlags(), outgoing, unasked) == (
        AuthenticationFlags(), outgoing,
    )  # fmt: skip


def test_a_connection_that_says_nothing_takes_little_memory():
    """Anybody may open thousands of them: asyncio has a buffer of 256 KiB for each."""
    with Cluster(Options(tls=True)) as cluster:
        place = ("127.0.0.1", int(cluster.url.rpartition(":")[2]))

        def connected(count):
            known = len(cluster._http.listener.newcomers)
            found = [socket.create_connection(place) for _ in range(count)]
            until(lambda: len(cluster._http.listener.newcomers) == known + count)
            return found

        first = connected(1)
        tracemalloc.start()
        try:
            more = connected(40)
            held = tracemalloc.get_traced_memory()[0] / 40
        finally:
            tracemalloc.stop()
        for each in (*first, *more):
            each.close()
    assert held < 64 * 1024

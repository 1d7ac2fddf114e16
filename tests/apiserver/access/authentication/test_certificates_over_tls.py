"""A certificate that TLS has verified reaches the chain, through HTTP and WebSockets."""

import json
import ssl
from datetime import UTC, datetime
from http.client import HTTPSConnection
from urllib.parse import urlsplit

import pytest

from authorities import Authority, pem_pair
from dralab.apiserver.access.authentication.openid import FetchError, fetcher
from dralab.apiserver.access.authentication.settings import AuthenticationFlags
from dralab.cluster import Cluster, Options
from dralab.kernel.clock import SECOND, WallClock

# TLS looks at the machine's clock.
NOW = datetime.fromtimestamp(WallClock().now() // SECOND, UTC)
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def authority():
    return Authority(now=NOW)


@pytest.fixture(scope="module")
def cluster(authority, tmp_path_factory):
    place = tmp_path_factory.mktemp("authorities")
    (place / "ca.crt").write_bytes(authority.pem)
    (place / "tokens.csv").write_text('t0ken,jane,u,"team-a"\n')
    flags = AuthenticationFlags(
        client_ca_file=place / "ca.crt", token_auth_file=place / "tokens.csv"
    )
    with Cluster(Options(tls=True, authentication=flags)) as cluster:
        yield cluster


def whoami(cluster, certificate=None, **headers):
    headers |= {"content-type": "application/json"}
    status, found = ask(cluster, "POST", REVIEW, b"{}", certificate=certificate, headers=headers)
    return found["status"]["userInfo"] if status == 201 else status


def ask(cluster, method, path, body=None, *, headers, certificate=None):
    context = ssl.create_default_context(cadata=cluster.ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    connection = HTTPSConnection(urlsplit(cluster.url).netloc, context=context, timeout=150)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_clients_certificate_says_who_it_is(cluster, authority, tmp_path):
    (tmp_path / "alice.pem").write_bytes(pem_pair(*authority.issue("alice", ["devs"])))
    found = whoami(cluster, tmp_path / "alice.pem")
    assert (found["username"], found["groups"]) == ("alice", ["devs", "system:authenticated"])
    assert list(found["extra"]) == ["authentication.kubernetes.io/credential-id"]
    assert whoami(cluster) == 401
    assert whoami(cluster, Authorization="Bearer t0ken")["username"] == "jane"
    assert whoami(cluster, Authorization=f"Bearer {cluster.token}")["username"] == "admin"


def test_a_websocket_is_of_whom_the_certificate_names(cluster, authority, tmp_path):
    (tmp_path / "alice.pem").write_bytes(pem_pair(*authority.issue("alice", ["devs"])))
    path = "/api/v1/namespaces/default/pods/absent/exec?command=true&stdout=true"
    handshake = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "sec-websocket-protocol": "v5.channel.k8s.io",
    }
    assert ask(cluster, "GET", path, headers=handshake)[0] == 401
    status, answer = ask(
        cluster, "GET", path, headers=handshake, certificate=tmp_path / "alice.pem"
    )
    assert (status, answer["message"]) == (404, 'pods "absent" not found')


def test_headers_that_come_twice_are_all_read(cluster):
    context = ssl.create_default_context(cadata=cluster.ca)
    connection = HTTPSConnection(urlsplit(cluster.url).netloc, context=context, timeout=150)
    try:
        connection.putrequest("POST", REVIEW)
        for name, value in (
            ("Authorization", "Bearer t0ken"),
            ("Authorization", "Bearer nope"),
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Content-Length", "2"),
            ("Content-Type", "application/json"),
        ):
            connection.putheader(name, value)
        connection.endheaders(b"{}")
        found = json.loads(connection.getresponse().read())["status"]["userInfo"]
    finally:
        connection.close()
    assert (found["username"], found["groups"]) == ("bob", ["a", "b", "system:authenticated"])


def test_a_provider_is_asked_over_tls_alone(cluster, tmp_path):
    (tmp_path / "ca.crt").write_text(cluster.ca)
    with pytest.raises(FetchError, match="answers 401"):
        fetcher(tmp_path / "ca.crt")(f"{cluster.url}/openid/v1/jwks")
    with pytest.raises(FetchError, match=r"(?i)certificate"):
        fetcher(None)(f"{cluster.url}/openid/v1/jwks")


def test_a_certificate_of_a_stranger_ends_the_connection(cluster, tmp_path):
    stranger = Authority(now=NOW)
    (tmp_path / "x.pem").write_bytes(pem_pair(*stranger.issue("admin", ["system:masters"])))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        whoami(cluster, tmp_path / "x.pem")

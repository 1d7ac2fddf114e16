"""What a web page can send to a server that asks for no credential, and what it gets."""

import http.client
import json
import socket
import urllib.request
from collections.abc import Iterator

import pytest

from dralab.apiserver.access.users import ADMIN, User
from dralab.apiserver.http.application import Application
from dralab.apiserver.http.browser_guard import is_loopback, name_of
from dralab.apiserver.http.connections.listening import ServingError, listen
from dralab.apiserver.http.messages import HttpRequest
from dralab.cluster import Cluster, Options

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CONFIGMAP = b'{"metadata": {"name": "a"}}'
JSON = "application/json"


class Client:
    """Sends what it is told, and adds nothing but a body's length."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.host = cluster.url.removeprefix("http://")

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str | None
    ) -> tuple[int, str]:
        """Return the status and the message of a refusal; `_` in names of headers stands for `-`."""
        connection = http.client.HTTPConnection(self.host, timeout=150)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        given = {"host": self.host, **headers}
        for name, value in given.items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found.get("message", "")

    @property
    def created(self) -> bool:
        return self.ask("GET", f"{CONFIGMAPS}/a")[0] == 200


@pytest.fixture
def client() -> Iterator[Client]:
    with Cluster(Options(accept_hosts=["lab.example"])) as cluster:
        yield Client(cluster)


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/x-www-form-urlencoded"]
)
def test_a_form_of_another_site_creates_nothing(client: Client, content_type: str | None) -> None:
    """Also where the browser is so old that it says nothing of the page."""
    assert client.ask("POST", CONFIGMAPS, CONFIGMAP, content_type=content_type)[0] == 415
    assert client.ask("DELETE", CONFIGMAPS, b"{}", content_type=content_type)[0] == 415
    assert not client.created
    assert client.ask("POST", CONFIGMAPS, CONFIGMAP, content_type=JSON)[0] == 201


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        ("OpenAPI-Generator/37.0.2/python", 201),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:60.0)", 415),
        (None, 415),
        ("", 415),
    ],
)
def test_a_program_may_leave_out_the_content_type_a_browser_may_not(
    client: Client, agent: str | None, status: int
) -> None:
    """The official Python client does."""
    assert client.ask("POST", CONFIGMAPS, CONFIGMAP, user_agent=agent)[0] == status


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://localhost:3000",
        "http://localhost",
        "file://",
        "http://[",
    ],
)
def test_a_foreign_origin_neither_reads_nor_writes(client: Client, origin: str) -> None:
    assert client.ask("GET", SECRETS, origin=origin)[0] == 403
    status, message = client.ask("POST", CONFIGMAPS, CONFIGMAP, content_type=JSON, origin=origin)
    assert status == 403
    assert message == f'web pages from "{origin}" may not use this server'
    assert not client.created


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_of_elsewhere_loads_is_refused(client: Client, site: str) -> None:
    status, message = client.ask("GET", SECRETS, sec_fetch_site=site)
    assert (status, site in message) == (403, True)
    assert (
        client.ask("POST", CONFIGMAPS, CONFIGMAP, content_type=JSON, sec_fetch_site=site)[0] == 403
    )
    assert not client.created


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_page_of_the_server_itself_is_answered(client: Client, site: str) -> None:
    origin = f"http://{client.host}"
    assert client.ask("GET", SECRETS, origin=origin, sec_fetch_site=site)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1", "10.0.0.1",
     "127.0.0.1@evil.example", "evil.example:127.0.0.1", "[::1]evil.example", "[::1", "", None],
)  # fmt: skip
def test_a_rebound_name_reads_no_secrets(client: Client, host: str | None) -> None:
    """Origin is no help here: the page's own name is Host and Origin at once."""
    origin = f"http://{host}"
    status, message = client.ask(
        "GET", SECRETS, host=host, origin=origin, sec_fetch_site="same-origin"
    )
    assert status == 403
    assert "--accept-hosts" in message


def test_a_refusal_names_the_host_and_the_option(client: Client) -> None:
    assert client.ask("GET", "/version", host="evil.example:80")[1] == (
        'the Host "evil.example" is not a name of this server: a server without credentials '
        "accepts only loopback names; --accept-hosts evil.example accepts the name"
    )


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "localhost.", "127.0.0.1", "127.1.2.3:9", "[::1]:80", "[::1]",
             "lab.example:8080", "LAB.example."],
)  # fmt: skip
def test_names_of_this_machine_and_those_of_the_operator_are_answered(
    client: Client, host: str
) -> None:
    assert client.ask("GET", SECRETS, host=host)[0] == 200


def test_a_made_up_credential_opens_nothing(client: Client) -> None:
    """A rebound page may set any header; this server checks no token, so it proves nothing."""
    answer = client.ask("GET", SECRETS, host="evil.example", authorization="Bearer guessed")
    assert answer[0] == 403


def test_with_a_token_there_is_no_guard_and_without_it_nothing_at_all() -> None:
    with Cluster(Options(token="secret")) as cluster:
        client = Client(cluster)
        strange = {"host": "evil.example", "origin": "http://evil.example"}
        assert client.ask("GET", SECRETS, **strange) == (401, "Unauthorized")
        assert client.ask("GET", SECRETS, authorization="Bearer secre", **strange)[0] == 401
        # As Kubernetes: a body without a Content-Type is JSON.
        shown = {"authorization": "Bearer secret", **strange}
        assert client.ask("POST", CONFIGMAPS, CONFIGMAP, **shown)[0] == 201


class Certified(Application):
    """Knows everybody by what a browser adds to the requests of every page: a certificate."""

    def user_of(self, request: HttpRequest) -> User:
        return ADMIN


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"user_agent": "Mozilla/5.0"}, 415),
        ({"user_agent": "kubectl/1.36"}, 201),
        ({"authorization": "Bearer secret", "origin": "https://evil.example"}, 201),
    ],
)
def test_a_certificate_of_the_browser_is_no_credential_of_the_page(
    headers: dict[str, str], status: int
) -> None:
    with Cluster(Options(token="secret")) as cluster:
        cluster.server.application.__class__ = Certified
        assert Client(cluster).ask("POST", CONFIGMAPS, CONFIGMAP, **headers)[0] == status


@pytest.mark.parametrize("headers", [{}, {"Content-Type": JSON}])
def test_what_comes_with_python_gets_in_or_is_told_how(headers: dict[str, str]) -> None:
    """http.client names no program; urllib says that each body is a form."""
    with Cluster() as cluster:
        connection = http.client.HTTPConnection(Client(cluster).host, timeout=150)
        connection.request("POST", CONFIGMAPS, CONFIGMAP, headers)
        by_http = connection.getresponse()
        request = urllib.request.Request(f"{cluster.url}{SECRETS}", CONFIGMAP, headers)
        plain = urllib.request.OpenerDirector()  # which takes no answer for an error
        plain.add_handler(urllib.request.HTTPHandler())
        by_urllib = plain.open(request)
        assert by_urllib is not None
        for answer in (by_http, by_urllib):
            assert answer.status == (201 if headers else 415)
            assert headers or b"application/json" in answer.read()
            answer.close()
        connection.close()


def test_a_stranger_is_refused_before_the_body_is_read() -> None:
    with Cluster(Options(token="secret")) as cluster:
        host = Client(cluster).host
        address, _, port = host.rpartition(":")
        with socket.create_connection((address, int(port)), timeout=150) as connection:

            def refusals(count: int) -> None:
                found = b""
                while found.count(b"HTTP/1.1 401 Unauthorized") < count:
                    found += connection.recv(10_000)

            head = f"HTTP/1.1\r\nhost: {host}\r\n"
            connection.sendall(f"POST {CONFIGMAPS} {head}content-length: 1000\r\n\r\n".encode())
            refusals(1)
            # What comes of the body is thrown away, and the connection goes on.
            connection.sendall(b"x" * 1000 + f"GET / {head}\r\n".encode())
            refusals(1)


def test_a_server_at_an_ipv6_address_knows_its_own_names_and_no_malformed_ones() -> None:
    try:
        listen("::1", 0).close()
    except ServingError:
        pytest.skip("this machine has no IPv6")
    with Cluster(Options(host="::1")) as cluster:
        client = Client(cluster)
        assert client.ask("GET", SECRETS, host="[::1]:80")[0] == 200
        for host in ("", "::1:6443", "x:y", "[::1", None):
            assert client.ask("GET", SECRETS, host=host)[0] == 403


@pytest.mark.parametrize("text", ["a b", "a:b", "[::1]x", "[::1", "::1"])
def test_a_malformed_host_is_nobody(text: str) -> None:
    assert not is_loopback(name_of(text))


def test_an_address_that_ipv6_wraps_is_the_loopback() -> None:
    assert is_loopback(name_of("[::ffff:127.0.0.1]:80"))

import base64

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from apiserver.verbs.asking import Asked
from authorities import NOW, Authority, der
from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.certificates import ClientCertificates
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.users import User
from dralab.apiserver.http.messages import HttpRequest
from dralab.kernel.clock import SECOND, ManualClock

JANE = User(name="jane", groups=("team-a",))
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def clock():
    return ManualClock(int(NOW.timestamp()) * SECOND)


@pytest.fixture
def chain(authority, clock):
    return Authentication(
        tokens=[TokenTable({"t0ken": JANE})],
        certificates=ClientCertificates([authority.der], clock),
    )


def head(certificate=b"", **headers):
    return HttpRequest(method="GET", path="/", headers=headers, certificate=certificate)


def name_of(chain, certificate=b"", **headers):
    try:
        return chain.user_of(head(certificate, **headers)).name
    except ApiError as error:
        return error.code


@pytest.mark.parametrize(
    ("header", "who"),
    [
        ("Bearer t0ken", "jane"),
        ("bearer t0ken", "jane"),
        ("Bearer t0ken ", "jane"),
        ("Bearer t0ken and more", "jane"),
        ("Bearer  t0ken", 401),
        ("Bearer T0ken", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("Basic t0ken", 401),
        ("t0ken", 401),
        ("", 401),
    ],
)
def test_a_bearer_token_is_read_as_a_real_server_reads_it(chain, header, who):
    assert name_of(chain, authorization=header) == who


def test_a_refusal_says_no_more_than_that_it_is_one(chain):
    with pytest.raises(ApiError) as caught:
        chain.user_of(head(authorization="Bearer nope"))
    assert caught.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


def test_everybody_who_is_known_is_authenticated(chain):
    user = chain.user_of(head(authorization="Bearer t0ken"))
    assert user.groups == ("team-a", "system:authenticated")


def test_a_websocket_of_a_page_names_its_token_among_the_protocols(chain):
    text = base64.urlsafe_b64encode(b"t0ken").decode().rstrip("=")
    offered = f"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{text}"
    assert name_of(chain, **{"sec-websocket-protocol": offered}) == "jane"
    for wrong in (
        "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.!",
        f"base64url.bearer.authorization.k8s.io.{text}",
        text,
    ):
        assert name_of(chain, **{"sec-websocket-protocol": wrong}) == 401


def test_nobody_behind_the_server_sees_the_token_of_a_websocket(chain):
    application = Asked().application
    application.authentication = chain
    token = "base64url.bearer.authorization.k8s.io.dDBrZW4"
    offered = f"{token}, v5.channel.k8s.io"
    request = head(**{"sec-websocket-protocol": offered, "origin": "https://console.example"})
    application.admit(request)
    assert request.user.name == "jane"
    assert request.headers["sec-websocket-protocol"] == "v5.channel.k8s.io"


def test_a_certificate_names_user_groups_and_uid(chain, authority):
    certificate = der(authority.issue("alice", ["devs", "ops"], uid="u-1")[0])
    user = chain.user_of(head(certificate))
    assert (user.name, user.uid) == ("alice", "u-1")
    assert user.groups == ("devs", "ops", "system:authenticated")
    (credential,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")
    assert len(credential) == len("X509SHA256=") + 64


def test_a_certificate_counts_before_a_token_and_a_bad_one_not_at_all(chain, authority, clock):
    good, bad = der(authority.issue()[0]), der(Authority().issue()[0])
    known = "Bearer t0ken"
    assert name_of(chain, good, authorization=known) == "alice"
    assert name_of(chain, good, authorization="Bearer nope") == "alice"
    assert name_of(chain, bad, authorization=known) == "jane"
    assert name_of(chain, bad) == 401
    assert name_of(chain, b"not DER") == 401


@pytest.mark.parametrize("changes", [{"name": ""}, {"usage": SERVER}, {"days": 0}])
def test_a_certificate_for_something_else_is_not_a_users(chain, authority, clock, changes):
    certificate = der(authority.issue(**changes)[0])
    clock.advance(3600 * SECOND)
    assert name_of(chain, certificate) == 401


def test_a_certificate_ends_while_its_connection_lasts(chain, authority, clock):
    certificate = der(authority.issue(days=1, usage=None)[0])
    assert name_of(chain, certificate) == "alice"
    clock.advance(25 * 3600 * SECOND)
    assert name_of(chain, certificate) == 401


def test_without_tokens_everybody_is_the_administrator():
    assert name_of(Authentication()) == "admin"
    assert name_of(Authentication(), authorization="Bearer whatever") == "admin"


def test_anonymous_is_who_shows_nothing_never_who_shows_something_bad():
    chain = Authentication(tokens=[TokenTable({"t0ken": JANE})], anonymous=True)
    user = chain.user_of(head())
    assert (user.name, user.groups) == ("system:anonymous", ("system:unauthenticated",))
    assert name_of(chain, authorization="Bearer nope") == 401

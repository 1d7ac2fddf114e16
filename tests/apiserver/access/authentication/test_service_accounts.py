"""Tokens of service accounts, through the server's verbs."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from dralab.api.status import ApiError
from dralab.apiserver.access.authentication import jwt
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.authentication.service_accounts import ServiceAccountSettings
from dralab.apiserver.access.authentication.settings import AuthenticationFlags, settings_of
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.users import ADMIN
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.assembly import new_resources
from dralab.apiserver.verbs.state.options import DeleteOptions
from dralab.apiserver.verbs.subresources import reviews, subresources
from dralab.kernel.clock import SECOND, ManualClock
from dralab.kernel.randomness import Randomness

START = 1_800_000_000
API = "https://kubernetes.default.svc"
KEY = ec.generate_private_key(ec.SECP256R1())
AT_ONCE = DeleteOptions(grace=0)


class Lab:
    """A server's verbs, an account `robot`, and a chain that knows its tokens."""

    def __init__(self, **settings):
        self.clock = ManualClock(START * SECOND)
        settings = {"signing_key": lambda: KEY, **settings}
        self.resources = new_resources(
            MemoryStore(),
            self.clock,
            Randomness(1),
            service_accounts=ServiceAccountSettings(**settings),
        )
        self.issuer = self.resources.context.issuer
        self.chain = Authentication(
            tokens=[TokenTable({"admin": ADMIN})],
            service_accounts=self.issuer,
            audiences=self.issuer.audiences,
        )
        self.resources.context.authentication = self.chain
        self.create("serviceaccounts", {"metadata": {"name": "robot"}})

    def kind(self, plural, group="", version="v1"):
        return self.resources.kind(group, version, plural)

    def create(self, plural, value):
        kind = self.kind(plural)
        return self.resources.create(kind, value, "default" if kind.namespaced else "").value

    def delete(self, plural, name):
        kind = self.kind(plural)
        self.resources.delete(kind, name, "default" if kind.namespaced else "", AT_ONCE)

    def pod(self, name="p", account="robot", **spec):
        spec = {"containers": [{"name": "c", "image": "i"}], **spec}
        return self.create(
            "pods", {"metadata": {"name": name}, "spec": {"serviceAccountName": account, **spec}}
        )

    def request(self, **spec):
        return subresources.call(
            self.resources.context.scope(),
            "create",
            self.kind("serviceaccounts"),
            "robot",
            "token",
            body={"spec": spec},
            namespace="default",
            type="merge",
        )

    def token(self, kind="", name="", **spec):
        if kind:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": name}
        return self.request(**spec)["status"]["token"]

    def user(self, token):
        headers = {"authorization": f"Bearer {token}"}
        return self.chain.user_of(HttpRequest(method="GET", path="/", headers=headers))

    def refusal(self, token, audiences=()):
        """Return what TokenReview says against a token."""
        kind = self.kind("tokenreviews", "authentication.k8s.io")
        spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        status = reviews.ask(self.resources.context.scope(), kind, {"spec": spec}, "")["status"]
        if not status.get("authenticated"):
            with pytest.raises(ApiError):
                self.user(token if not audiences else "")
        return status.get("error")


@pytest.fixture
def lab():
    return Lab()


def test_a_token_says_what_a_real_servers_says(lab):
    answer = lab.request(expirationSeconds=900)
    robot = lab.resources.context.own.live(lab.kind("serviceaccounts"), "default", "robot")
    uid = robot.value["metadata"]["uid"]
    token = jwt.parsed(answer["status"]["token"])
    assert token.head == {"alg": "ES256", "kid": jwt.public_key(KEY.public_key()).key_id}
    identity = token.claims["jti"]
    assert token.claims == {
        "aud": [API],
        "exp": START + 900,
        "iat": START,
        "iss": API,
        "jti": identity,
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "robot", "uid": uid},
        },
        "nbf": START,
        "sub": "system:serviceaccount:default:robot",
    }
    user = lab.user(answer["status"]["token"])
    assert (user.name, user.uid) == ("system:serviceaccount:default:robot", uid)
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    )
    assert user.extra == {"authentication.kubernetes.io/credential-id": (f"JTI={identity}",)}


def test_a_token_ends_a_minute_after_its_time(lab):
    token = lab.token(expirationSeconds=600)
    lab.clock.advance(659 * SECOND)
    assert lab.refusal(token) is None
    lab.clock.advance(2 * SECOND)
    assert lab.refusal(token) == "[invalid bearer token, service account token has expired]"


def test_a_token_ends_with_its_account(lab):
    token = lab.token()
    assert lab.refusal(token) is None
    lab.delete("serviceaccounts", "robot")
    assert lab.refusal(token) == '[invalid bearer token, serviceaccounts "robot" not found]'
    lab.create("serviceaccounts", {"metadata": {"name": "robot"}})
    assert "service account UID (" in lab.refusal(token)


def test_a_pods_token_ends_with_the_pod_and_says_where_it_runs(lab):
    lab.create("nodes", {"metadata": {"name": "n1"}})
    uid = lab.pod(nodeName="n1")["metadata"]["uid"]
    token = lab.token("Pod", "p")
    extra = lab.user(token).extra
    assert extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert extra["authentication.kubernetes.io/pod-uid"] == (uid,)
    assert extra["authentication.kubernetes.io/node-name"] == ("n1",)
    assert len(extra["authentication.kubernetes.io/node-uid"]) == 1
    lab.delete("pods", "p")
    gone = "[invalid bearer token, service account token has been invalidated]"
    assert lab.refusal(token) == gone
    lab.pod()
    assert "pod UID (" in lab.refusal(token)


def test_a_pod_that_is_ending_keeps_its_token_for_a_minute(lab):
    lab.pod(nodeName="n1")
    token = lab.token("Pod", "p")
    lab.resources.delete(lab.kind("pods"), "p", "default", DeleteOptions(grace=30))
    lab.clock.advance(80 * SECOND)
    assert lab.refusal(token) is None
    lab.clock.advance(20 * SECOND)
    assert "invalidated" in lab.refusal(token)


@pytest.mark.parametrize(("kind", "plural"), [("Secret", "secrets"), ("Node", "nodes")])
def test_a_token_ends_with_the_secret_or_node_that_it_is_bound_to(lab, kind, plural):
    lab.create(plural, {"metadata": {"name": "x"}})
    token = lab.token(kind, "x")
    assert lab.refusal(token) is None
    lab.delete(plural, "x")
    assert "service account token has been invalidated" in lab.refusal(token)


def test_a_token_is_bound_to_nothing_that_is_not_its_accounts(lab):
    lab.create("serviceaccounts", {"metadata": {"name": "other"}})
    lab.pod(account="other")

    def why(**reference):
        with pytest.raises(ApiError) as caught:
            lab.request(boundObjectRef=reference)
        return caught.value.code, str(caught.value)

    assert why(apiVersion="v1", kind="Pod", name="absent") == (404, 'pods "absent" not found')
    assert why(apiVersion="v1", kind="Pod", name="p") == (
        400,
        'cannot bind token for serviceaccount "robot" to pod running with different '
        "serviceaccount name.",
    )
    assert why(apiVersion="apps/v1", kind="Deployment", name="p") == (
        400,
        "cannot bind token to object of type apps/v1, Kind=Deployment",
    )
    lab.create("secrets", {"metadata": {"name": "s"}})
    code, text = why(apiVersion="v1", kind="Secret", name="s", uid="other")
    assert (code, "the UID in the bound object reference (other)" in text) == (409, True)


def test_a_token_for_others_is_not_for_the_server(lab):
    token = lab.token(audiences=["vault"])
    assert lab.refusal(token) == (
        '[invalid bearer token, token audiences ["vault"] is invalid for the target audiences '
        f'["{API}"]]'
    )
    kind = lab.kind("tokenreviews", "authentication.k8s.io")
    answer = reviews.ask(
        lab.resources.context.scope(),
        kind,
        {"spec": {"token": token, "audiences": ["x", "vault"]}},
        "",
    )
    assert answer["status"]["audiences"] == ["vault"]
    assert lab.refusal(lab.token(), ["vault"])


def test_a_forged_token_says_nothing(lab):
    other = Lab(signing_key=lambda: ec.generate_private_key(ec.SECP256R1()))
    assert lab.refusal(other.token()) == (
        "[invalid bearer token, failed to verify the signature of a service account token]"
    )
    stranger = Lab(issuers=("https://elsewhere",))
    assert lab.refusal(stranger.token()) == "invalid bearer token"


def test_a_token_of_a_volume_lasts_and_warns(lab):
    claims = jwt.parsed(lab.token(expirationSeconds=3607)).claims
    assert claims["exp"] == START + 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] == START + 3607
    claims = jwt.parsed(lab.token(expirationSeconds=3607, audiences=["vault"])).claims
    assert claims["exp"] == START + 3607
    claims = jwt.parsed(Lab(extend=False).token(expirationSeconds=3607)).claims
    assert claims["exp"] == START + 3607


def test_keys_of_before_and_issuers_of_before_are_accepted():
    old = Lab(issuers=("https://old",))
    token = old.token(expirationSeconds=3600)
    public = jwt.public_key(KEY.public_key())
    new = Lab(
        signing_key=lambda: ec.generate_private_key(ec.SECP256R1()),
        issuers=("https://new", "https://old"),
        keys=(public,),
    )
    # The same seed made the same UID.
    assert new.user(token).name == "system:serviceaccount:default:robot"
    assert jwt.parsed(new.token()).claims["iss"] == "https://new"
    assert public.key_id in [each["kid"] for each in new.issuer.key_set()["keys"]]


def test_an_operators_keys_are_read(tmp_path):
    private = KEY.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    (tmp_path / "sa.key").write_bytes(private)
    (tmp_path / "sa.pub").write_bytes(
        public + other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "none").write_text("no key")

    def read(**flags):
        found = settings_of(AuthenticationFlags(**flags), ManualClock())
        return found.service_accounts

    found = read(
        service_account_signing_key_file=tmp_path / "sa.key",
        service_account_key_file=[tmp_path / "sa.pub", tmp_path / "sa.key"],
        service_account_issuer=["https://lab"],
    )
    assert found.signing_key().private_numbers() == KEY.private_numbers()
    assert [key.algorithms for key in found.keys] == [("ES256",), ("ES384",), ("ES256",)]
    assert found.issuers == ("https://lab",)
    for flags, why in (
        ({"service_account_signing_key_file": tmp_path / "sa.pub"}, "contains no PEM private key"),
        ({"service_account_signing_key_file": tmp_path / "no"}, "no such file"),
        (
            {"service_account_key_file": [tmp_path / "none"]},
            "contains no PEM-encoded RSA or ECDSA key",
        ),
        ({"service_account_issuer": [":x"]}, "is not a URL"),
        ({"service_account_max_token_expiration": SECOND}, "must be between 1h and"),
    ):
        with pytest.raises(UnusableSetting, match=why):
            read(**flags)


def test_a_longer_token_than_allowed_is_made_shorter_and_says_so():
    lab = Lab(longest=3600)
    assert lab.request(expirationSeconds=7200)["spec"]["expirationSeconds"] == 3600

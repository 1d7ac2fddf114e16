"""ID tokens of an OpenID provider."""

import gzip
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dralab.apiserver.access.authentication import jwt
from dralab.apiserver.access.authentication.errors import Rejected, UnusableSetting
from dralab.apiserver.access.authentication.openid import (
    DiscoveredKeys,
    FetchError,
    GivenKeys,
    OpenIdSettings,
    OpenIdTokens,
    fetcher,
)
from dralab.apiserver.access.authentication.settings import AuthenticationFlags, settings_of
from dralab.kernel.clock import SECOND, ManualClock
from webhookserver import WebhookServer, authority

NOW = 1_800_000_000
ISSUER = "https://login.example"
KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = jwt.public_key(KEY.public_key())


def token(key=KEY, **claims):
    claims = {"iss": ISSUER, "aud": "lab", "sub": "jane", "exp": NOW + 60, **claims}
    return jwt.signed({name: value for name, value in claims.items() if value is not None}, key)


def tokens(source=None, clock=None, **settings):
    settings = OpenIdSettings(issuer=ISSUER, client_id="lab", **settings)
    clock = clock or ManualClock(NOW * SECOND)
    return OpenIdTokens(settings, source or GivenKeys([PUBLIC]), clock)


def user(text, **settings):
    return tokens(**settings).known(text).user


def test_claims_name_the_user():
    assert user(token()).name == "https://login.example#jane"
    assert user(token(), username_prefix="oidc:").name == "oidc:jane"
    assert user(token(), username_prefix="-").name == "jane"
    assert user(token(email="j@x"), username_claim="email").name == "j@x"
    found = user(token(groups=["a", "b"], jti="1"), groups_claim="groups", groups_prefix="g:")
    assert found.groups == ("g:a", "g:b")
    assert found.extra == {"authentication.kubernetes.io/credential-id": ("JTI=1",)}
    assert user(token(groups="a"), groups_claim="groups").groups == ("a",)
    assert user(token(groups=["a"])).groups == (), "nobody has asked for groups"


@pytest.mark.parametrize(
    ("claims", "settings", "why"),
    [
        ({"exp": NOW - 1}, {}, "token is expired"),
        ({"exp": None}, {}, "token is expired"),
        ({"exp": "never"}, {}, "token is expired"),
        ({"nbf": NOW + 301}, {}, "before the nbf"),
        ({"aud": "other"}, {}, 'expected audience "lab"'),
        ({"aud": None}, {}, 'expected audience "lab"'),
        ({"sub": None}, {}, "claim not present"),
        ({"sub": ["root"]}, {}, "claim not present"),
        ({"email": "j@x", "email_verified": False}, {"username_claim": "email"}, "not verified"),
        ({"email": "j@x", "email_verified": "no"}, {"username_claim": "email"}, "not verified"),
        ({"groups": {"a": 1}}, {"groups_claim": "groups"}, "not a list of strings"),
        ({"groups": [1]}, {"groups_claim": "groups"}, "not a list of strings"),
        ({"team": "b"}, {"required_claims": [("team", "a")]}, "required claim team"),
        ({}, {"required_claims": [("team", "a")]}, "required claim team"),
    ],
)
def test_a_token_that_is_not_good_is_refused(claims, settings, why):
    with pytest.raises(Rejected, match=why):
        user(token(**claims), **settings)


def test_a_token_of_somebody_else_is_somebody_elses_business():
    assert tokens().known(token(iss="https://other")) is None
    assert tokens().known("not a token") is None
    forged = token(key=ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(Rejected, match="failed to verify signature"):
        tokens().known(forged)


def test_a_known_token_ends_in_time_all_the_same():
    clock = ManualClock(NOW * SECOND)
    found = tokens(clock=clock)
    assert found.known(token()) is not None
    clock.advance(61 * SECOND)
    with pytest.raises(Rejected, match="expired"):
        found.known(token(exp=NOW + 60))


class Provider:
    """Answers what is asked of it, and notes it."""

    def __init__(self, *keys):
        self.documents = {
            f"{ISSUER}/.well-known/openid-configuration": {
                "issuer": ISSUER,
                "jwks_uri": f"{ISSUER}/keys",
            },
            f"{ISSUER}/keys": {"keys": [jwt.as_jwk(key) for key in keys]},
        }

    def __call__(self, url):
        if url not in self.documents:
            raise FetchError(f"{url} answers 404")
        return self.documents[url]


def test_keys_come_from_the_provider_and_change_with_it():
    provider = Provider()
    source = DiscoveredKeys(ISSUER, ["ES256"], provider)
    found = tokens(source)
    with pytest.raises(Rejected, match="not initialized"):
        found.known(token())
    with pytest.raises(FetchError, match="0 keys for ES256"):
        source.refresh()
    provider.documents = Provider(PUBLIC).documents
    source.refresh()
    assert found.known(token()) is not None
    other = ec.generate_private_key(ec.SECP256R1())
    provider.documents = Provider(jwt.public_key(other.public_key())).documents
    source.refresh()
    assert found.known(token(key=other)) is not None
    with pytest.raises(Rejected, match="failed to verify signature"):
        found.known(token())


def test_a_token_that_is_checked_while_the_keys_change_is_not_known_by_the_new_ones(monkeypatch):
    provider = Provider(PUBLIC)
    source = DiscoveredKeys(ISSUER, ["ES256"], provider)
    source.refresh()
    found, other = tokens(source), ec.generate_private_key(ec.SECP256R1())
    is_verified = jwt.is_verified

    def slowly(text, keys):
        monkeypatch.setattr(jwt, "is_verified", is_verified)
        provider.documents = Provider(jwt.public_key(other.public_key())).documents
        source.refresh()
        assert found.known(token(key=other)) is not None  # in another thread
        return is_verified(text, keys)

    monkeypatch.setattr(jwt, "is_verified", slowly)
    text = token()
    assert found.known(text) is not None, "its keys were those of the provider when it came"
    with pytest.raises(Rejected, match="failed to verify signature"):
        found.known(text)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issuer": "https://evil"}, "is of the issuer 'https://evil'"),
        ({"jwks_uri": "http://login.example/keys"}, "must be a URL with https"),
        ({"jwks_uri": 3}, "must be a URL with https"),
        ({"jwks_uri": f"{ISSUER}/.well-known/openid-configuration"}, "`keys` must be a list"),
        ({"jwks_uri": f"{ISSUER}/absent"}, "answers 404"),
    ],
)
def test_what_a_provider_says_is_checked(changes, why):
    provider = Provider(PUBLIC)
    provider.documents[f"{ISSUER}/.well-known/openid-configuration"] |= changes
    source = DiscoveredKeys(ISSUER, ["ES256"], provider)
    with pytest.raises(FetchError, match=why):
        source.refresh()
    assert source.keys is None


def test_a_document_is_not_unpacked(tmp_path):
    provider = WebhookServer()
    (tmp_path / "ca").write_bytes(authority().pem)
    packed = gzip.compress(b'{"keys": []}')
    provider.answers["/keys"] = lambda _: (200, packed, ("Content-Encoding", "gzip"))
    try:
        with pytest.raises(FetchError, match="is not JSON"):
            fetcher(tmp_path / "ca")(f"https://localhost:{provider.port}/keys")
    finally:
        provider.close()


def test_a_thread_fetches_and_an_unknown_key_has_it_fetch_again():
    provider = Provider(PUBLIC)
    asked = []

    def fetch(url):
        asked.append(url)
        if len(asked) == 4:
            source.stop()
        return provider(url)

    source = DiscoveredKeys(ISSUER, ["ES256"], fetch, again=0.001)
    source.start()
    thread = source._thread
    while source.keys is None:
        thread.join(0.001)
    with pytest.raises(Rejected):
        tokens(source).known(token(key=ec.generate_private_key(ec.SECP256R1())))
    thread.join(150)
    assert not thread.is_alive()
    assert len(asked) == 4


def test_the_flags_are_those_of_kube_apiserver(tmp_path):
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwt.as_jwk(PUBLIC)]}))
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "keys.pem").write_bytes(pem)
    (tmp_path / "other").write_text("no keys")
    clock = ManualClock(NOW * SECOND)

    def read(**flags):
        given = {
            "oidc_issuer_url": ISSUER,
            "oidc_client_id": "lab",
            "oidc_keys_file": tmp_path / "keys.json",
            "oidc_signing_algs": ["ES256"],
            **flags,
        }
        return settings_of(AuthenticationFlags(**given), clock).openid

    for name in ("keys.json", "keys.pem"):
        assert read(oidc_keys_file=tmp_path / name).known(token()).user.name == f"{ISSUER}#jane"
    found = read(oidc_required_claim=["team=a"])
    assert found.settings.required_claims == [("team", "a")]
    for flags, why in (
        ({"oidc_issuer_url": ""}, "belongs together"),
        ({"oidc_client_id": ""}, "belongs together"),
        ({"oidc_issuer_url": "", "oidc_client_id": ""}, "--oidc-keys-file: needs"),
        ({"oidc_issuer_url": "http://login.example"}, "is not a URL with https"),
        ({"oidc_signing_algs": ["HS256"]}, "unknown 'HS256'"),
        ({"oidc_signing_algs": ["RS256"]}, "has no key for RS256"),
        ({"oidc_required_claim": ["team"]}, "is not CLAIM=VALUE"),
        ({"oidc_keys_file": tmp_path / "other"}, "neither a JSON web key set nor PEM"),
    ):
        with pytest.raises(UnusableSetting, match=why):
            read(**flags)


def test_an_rsa_key_may_sign_as_well():
    key = rsa.generate_private_key(65537, 2048)
    settings = OpenIdSettings(issuer=ISSUER, client_id="lab")
    source = GivenKeys([jwt.public_key(key.public_key())])
    found = OpenIdTokens(settings, source, ManualClock(NOW * SECOND)).known(token(key=key))
    assert found.user.name == f"{ISSUER}#jane"

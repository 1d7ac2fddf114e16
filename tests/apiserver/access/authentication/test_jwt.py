import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from dralab.apiserver.access.authentication import jwt


@pytest.fixture(scope="module", params=["rsa", "P-256", "P-384", "P-521"])
def key(request):
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    if request.param == "rsa":
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(curves[request.param])


def text(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_a_token_is_verified_by_its_key_alone(key):
    public = jwt.public_key(key.public_key())
    token = jwt.parsed(jwt.signed({"sub": "jane"}, key))
    assert token.claims == {"sub": "jane"}
    assert jwt.is_verified(token, [public])
    other = jwt.public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    renamed = jwt.VerificationKey(public.key_id, other.public, other.algorithms)
    assert not jwt.is_verified(token, [other])
    assert not jwt.is_verified(token, [renamed])


def test_a_key_set_says_the_same_keys(key):
    public = jwt.public_key(key.public_key())
    (again,) = jwt.from_jwks({"keys": [jwt.as_jwk(public)]})
    assert again.key_id == public.key_id
    assert again.algorithms == public.algorithms[:1]
    assert jwt.is_verified(jwt.parsed(jwt.signed({}, key)), [again])


def test_a_key_set_without_an_algorithm_is_for_all_of_the_keys_kind():
    key = jwt.public_key(rsa.generate_private_key(65537, 2048).public_key())
    stated = jwt.as_jwk(key)
    del stated["alg"]
    assert jwt.from_jwks({"keys": [stated]}, ["RS256", "ES256"])[0].algorithms == ("RS256",)
    assert jwt.from_jwks({"keys": [stated]}, ["ES256"]) == []
    assert jwt.from_jwks({"keys": [{**stated, "use": "enc"}, {"kty": "oct", "k": "x"}, 3]}) == []
    for wrong in ({}, [], None, {"keys": 3}):
        with pytest.raises(jwt.KeyProblem):
            jwt.from_jwks(wrong)


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "HS256", "ES384", "RS256", None, 3, ["ES256"]]
)
def test_an_algorithm_that_is_not_the_keys_verifies_nothing(algorithm):
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.public_key(key.public_key())
    _, body, signature = jwt.signed({"sub": "jane"}, key).split(".")
    head = text({"alg": algorithm, "kid": public.key_id})
    for wrong in (signature, ""):
        assert not jwt.is_verified(jwt.parsed(f"{head}.{body}.{wrong}"), [public])


def test_a_changed_token_is_not_verified():
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.public_key(key.public_key())
    head, body, signature = jwt.signed({"sub": "jane"}, key).split(".")
    forged = text({"sub": "admin"})
    assert not jwt.is_verified(jwt.parsed(f"{head}.{forged}.{signature}"), [public])
    assert not jwt.is_verified(jwt.parsed(f"{head}.{body}.{'A' * 86}"), [public]), "r = s = 0"
    assert not jwt.is_verified(jwt.parsed(f"{head}.{body}.{'A' * 80}"), [public]), "short"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "a.b",
        "a.b.c",
        "..",
        "....",
        f"{text([])}.{text({})}.",
        f"{text({})}.{text([])}.",
        f"{text({})}.{text({})}.\u00e9",
        f"{text({})}==.{text({})}.",
        f"{text({})}.{text({})}.A",
        f"{text({})}.{text({})}.AB",
        f"{text({'crit': ['exp']})}.{text({})}.",
        f"{'A' * 70_000}.e30.",
        "\ud800.e30.",
    ],
)
def test_what_is_not_a_token_is_not_read(wrong):
    assert jwt.parsed(wrong) is None


def test_a_short_key_is_refused():
    with pytest.raises(jwt.KeyProblem, match="1024 bits: at least 2048"):
        jwt.public_key(rsa.generate_private_key(65537, 1024).public_key())  # noqa: S505
    with pytest.raises(jwt.KeyProblem, match="neither RSA nor"):
        jwt.public_key(ec.generate_private_key(ec.SECP192R1()).public_key())

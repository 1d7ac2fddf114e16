"""CertificateSigningRequests: what they say, and who decides about them."""

import base64

import pytest

from apiserver.verbs.asking import Asked
from authorities import request
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import Decision
from dralab.apiserver.access.authorization.modes import authorization_of
from dralab.apiserver.access.authorization.signers import CertificateApproval, CertificateSigning
from dralab.apiserver.access.users import User
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs import writing
from dralab.apiserver.verbs.assembly import built_in_admission
from dralab.apiserver.verbs.subresources import subresources

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
JANE = User(name="jane", groups=("team-a",), uid="u", extra={"scopes": ("view",)})

ONE, OTHER = (
    base64.b64encode(
        f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n".encode()
    ).decode()
    for text in ("YQ==", "Yg==")
)


@pytest.fixture(scope="module")
def asked():
    """What `spec.request` may be."""
    return request()


@pytest.fixture
def ask():
    return Asked()


def csr(request, name="c", signer=CLIENT, **spec):
    spec = {"request": request, "signerName": signer, "usages": ["client auth"], **spec}
    return {"metadata": {"name": name}, "spec": spec}


def condition(type="Approved", **more):
    return {"type": type, "status": "True", "reason": "R", **more}


def test_a_request_says_who_sent_it_whatever_it_says_itself(asked):
    resources = Asked().resources
    kind = resources.kind("certificates.k8s.io", "v1", "certificatesigningrequests")
    body = csr(asked, username="root", groups=["system:masters"], uid="0", extra={"a": ["b"]})
    made = resources.create(kind, body, "", resources.context.scope(user=JANE)).value
    told = {part: made["spec"].get(part) for part in ("username", "groups", "uid", "extra")}
    assert told == {
        "username": "jane",
        "groups": ["team-a"],
        "uid": "u",
        "extra": {"scopes": ["view"]},
    }


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"request": "Zm9v"}, "PEM block type must be CERTIFICATE REQUEST"),
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["fly"]}, 'spec.usages[0]: Unsupported value: "fly"'),
        ({"usages": ["any", "any"]}, 'spec.usages[1]: Duplicate value: "any"'),
        ({"signerName": ""}, "spec.signerName: Required value"),
        ({"signerName": "kubernetes.io/legacy-unknown"}, "the legacy signerName is not allowed"),
        ({"signerName": "a.b"}, "must be a fully qualified domain and path of the form"),
        ({"signerName": "a/b"}, "should be a domain with at least two segments"),
        ({"expirationSeconds": 599}, "may not specify a duration less than 600 seconds"),
    ],
)
def test_a_request_that_means_nothing_is_refused(ask, asked, changes, why):
    body = csr(asked)
    body["spec"] |= changes
    status, answer = ask("POST", REQUESTS, body)
    assert (status, why in answer["message"]) == (422, True), answer


def test_a_damaged_request_is_refused(ask):
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\nYQ==\n-----END CERTIFICATE REQUEST-----\n"
    status, answer = ask("POST", REQUESTS, csr(base64.b64encode(pem).decode()))
    assert (status, "malformed certificate request" in answer["message"]) == (422, True)


def test_what_was_asked_for_stays(ask, asked):
    _, made = ask("POST", REQUESTS, csr(asked))
    made["spec"]["usages"] = ["any"]
    made["status"] = {"certificate": ONE}
    _, found = ask("PUT", f"{REQUESTS}/c", made)
    assert (found["spec"]["usages"], found["status"]) == (["client auth"], {})


def test_an_approval_has_its_times_and_is_final(ask, asked):
    _, made = ask("POST", REQUESTS, csr(asked))
    made["status"] = {"conditions": [condition()]}
    status, approved = ask("PUT", f"{REQUESTS}/c/approval", made)
    (found,) = approved["status"]["conditions"]
    assert status == 200
    assert found["lastUpdateTime"] == found["lastTransitionTime"] == "2023-11-14T22:13:20Z"

    def why(subresource, *conditions):
        value = {**approved, "status": {"conditions": list(conditions)}}
        status, answer = ask("PUT", f"{REQUESTS}/c/{subresource}", value)
        assert status == 422
        return answer["message"]

    assert 'updates may not remove a condition of type "Approved"' in why("approval")
    denied = condition("Denied")
    assert "Approved and Denied conditions are mutually exclusive" in why(
        "approval", condition(), denied
    )
    assert 'not add a condition of type "Failed"' in why(
        "approval", condition(), condition("Failed")
    )
    assert 'not add a condition of type "Denied"' in why("status", condition(), denied)
    assert 'Unsupported value: "False"' in why("approval", condition(status="False"))


def test_a_certificate_is_given_once(ask, asked):
    _, made = ask("POST", REQUESTS, csr(asked))
    made["status"] = {"certificate": ONE}
    status, signed = ask("PUT", f"{REQUESTS}/c/status", made)
    assert (status, signed["status"]["certificate"]) == (200, ONE)
    made["status"] = {"certificate": "YQ=="}
    status, answer = ask("PUT", f"{REQUESTS}/c/status", {**made, "metadata": signed["metadata"]})
    assert (status, "must contain at least one CERTIFICATE" in answer["message"]) == (422, True)
    signed["status"]["certificate"] = OTHER
    status, answer = ask("PUT", f"{REQUESTS}/c/status", signed)
    assert (status, "may not change status.certificate" in answer["message"]) == (422, True)


def test_nobody_gets_a_certificate_of_a_superuser(ask):
    wanted = request("root", ["team-a", "system:masters"])
    status, answer = ask("POST", REQUESTS, csr(wanted))
    assert (status, answer["message"]) == (
        403,
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: use of '
        "kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
    )
    assert ask("POST", REQUESTS, csr(wanted, signer="example.com/other"))[0] == 201


class Only:
    """Allows one verb for one signer."""

    def __init__(self, verb, name):
        self.wanted = verb, "certificates.k8s.io", "signers", name

    def authorize(self, attributes):
        asked = attributes.verb, attributes.group, attributes.resource, attributes.name
        return Decision("allow" if asked == self.wanted else "no opinion")


class Changing:
    """Asks another authorizer, which may be exchanged."""

    now = None

    def authorize(self, attributes):
        return self.now.authorize(attributes)


@pytest.mark.parametrize(
    ("verb", "subresource", "status"),
    [
        ("approve", "approval", {"conditions": [condition()]}),
        ("sign", "status", {"certificate": ONE}),
        ("sign", "status", {"conditions": [condition("Failed")]}),
    ],
)
def test_a_signer_belongs_to_those_who_may_use_it(asked, verb, subresource, status):
    authorizer = Changing()
    checks = [CertificateApproval(authorizer), CertificateSigning(authorizer)]
    resources = Asked(admission=checks).resources
    kind = resources.kind("certificates.k8s.io", "v1", "certificatesigningrequests")
    made = resources.create(kind, csr(asked)).value

    def write():
        body = {"metadata": {"name": "c"}, "status": status}
        scope = resources.context.scope(user=JANE)
        if subresource == "status":
            return writing.update(
                scope, kind, {**made, "status": status}, "c", "", subresource="status"
            )
        return subresources.call(
            scope, "update", kind, "c", "approval", body=body, namespace="", type="merge"
        )

    for other in (Only(verb, "kubernetes.io/other"), Only("get", CLIENT), Only(verb, "*")):
        authorizer.now = other
        with pytest.raises(ApiError, match=f'requests with signerName "{CLIENT}"'):
            write()
    authorizer.now = Only(verb, "kubernetes.io/*")
    write()


def test_every_server_has_these_checks():
    plugins = [
        *built_in_admission(),
        *authorization_of(["RBAC"], MemoryStore(), lambda *_: ()).admission,
    ]
    assert {"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction"} <= {
        plugin.name for plugin in plugins
    }

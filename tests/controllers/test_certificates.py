"""Approved requests for certificates are signed, and only such as a signer signs."""

import base64
import ipaddress

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from authorities import Authority as OwnAuthority
from authorities import pem_pair, request
from dralab.controllers.certificates import Authority, CertificateSigner
from dralab.kernel.clock import SECOND
from dralab.runtime.resources import CERTIFICATE_REQUESTS
from labs import START, Lab

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
NODE = ("system:node:n1", ["system:nodes"])
DNS, IP = x509.DNSName("n1"), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))
APPROVED = {"type": "Approved", "status": "True", "reason": "R"}


@pytest.fixture(scope="module")
def authority():
    return OwnAuthority()


@pytest.fixture
def lab(authority, tmp_path):
    (tmp_path / "ca.pem").write_bytes(pem_pair(authority.certificate, authority.key))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    lab = Lab()
    CertificateSigner(lab.manager, Authority(tmp_path / "ca.crt", tmp_path / "ca.pem"))
    lab.start()
    return lab


def decided(lab, wanted, signer=CLIENT, usages=("client auth",), condition=APPROVED, **spec):
    """Return the status of a request that was decided about."""
    body = {
        "metadata": {"name": "c"},
        "spec": {"request": wanted, "signerName": signer, "usages": list(usages), **spec},
    }
    made = lab.client.create(CERTIFICATE_REQUESTS, body)
    made = {**made, "status": {"conditions": [condition] if condition else []}}
    lab.client.update(CERTIFICATE_REQUESTS, made, subresource="approval")
    lab.settle()
    return lab.get(CERTIFICATE_REQUESTS, "c")["status"]


def certificate(status):
    return x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))


def test_a_certificate_is_for_what_was_asked(lab, authority):
    wanted = request("jane", ["team-a"])
    usages = ["client auth", "digital signature"]
    made = certificate(decided(lab, wanted, usages=usages, expirationSeconds=3600))
    made.verify_directly_issued_by(authority.certificate)
    assert made.subject.rfc4514_string() == "CN=jane,O=team-a"
    now = START // SECOND
    assert made.not_valid_before_utc.timestamp() == now - 300
    assert made.not_valid_after_utc.timestamp() == now + 3600
    find = made.extensions.get_extension_for_class
    assert list(find(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not find(x509.BasicConstraints).value.ca
    assert find(x509.KeyUsage).value.digital_signature
    assert not find(x509.KeyUsage).value.key_cert_sign


def test_a_certificate_lasts_a_year_and_no_longer_than_its_authority(lab, authority):
    made = certificate(decided(lab, request()))
    assert made.not_valid_after_utc.timestamp() == START // SECOND + 365 * 24 * 3600
    with pytest.raises(x509.ExtensionNotFound):
        made.extensions.get_extension_for_class(x509.KeyUsage)


def test_a_node_has_a_client_certificate_and_one_to_serve_with(lab):
    usages = ["client auth", "digital signature"]
    assert certificate(decided(lab, request(*NODE), KUBELET, usages))
    lab.delete(CERTIFICATE_REQUESTS, "c")
    usages = ["server auth", "digital signature", "key encipherment"]
    made = certificate(decided(lab, request(*NODE, [DNS, IP]), SERVING, usages))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [DNS, IP]


@pytest.mark.parametrize("condition", [None, {"type": "Denied", "status": "True"}])
def test_only_what_is_approved_is_signed(lab, condition):
    assert "certificate" not in decided(lab, request(), condition=condition)


def test_the_requests_of_other_signers_are_left_alone(lab):
    status = decided(lab, request(), "example.com/signer")
    assert [each["type"] for each in status["conditions"]] == ["Approved"]
    assert "certificate" not in status


@pytest.mark.parametrize(
    ("wanted", "signer", "usages", "why"),
    [
        ((), CLIENT, ["server auth"], "invalid usage for client certificate: server auth"),
        ((), CLIENT, ["digital signature"], 'usages did not contain "client auth"'),
        ((), KUBELET, ["client auth"], "subject organization is not system:nodes"),
        (("n1", NODE[1]), KUBELET, [], "subject common name does not begin with system:node:"),
        ((*NODE, [DNS]), KUBELET, [], "DNS subjectAltNames are not allowed"),
        ((*NODE, [IP]), KUBELET, [], "IP subjectAltNames are not allowed"),
        (NODE, KUBELET, ["client auth"], "usages did not match"),
        (NODE, SERVING, [], "DNS or IP subjectAltName is required"),
        ((*NODE, [DNS, x509.RFC822Name("a@b")]), SERVING, [], "Email subjectAltNames are not"),
    ],
)
def test_what_a_signer_does_not_sign_fails_with_the_reason(lab, wanted, signer, usages, why):
    purpose = "server auth" if signer == SERVING else "client auth"
    status = decided(lab, request(*wanted), signer, usages or [purpose, "digital signature"])
    failed = status["conditions"][-1]
    assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
    assert why in failed["message"]
    assert "certificate" not in status

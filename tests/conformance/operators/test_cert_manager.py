"""cert-manager: its controller issues certificates, its webhook checks what asks for them.

The module proxy does not serve all that the controller needs: DRALAB_OPERATORS names a folder with
the three programs, under the names of their images.
"""

import base64
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import gomodules
from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import NAMESPACES, SECRETS
from operatorlab import NAMESPACE, admitted, free_port, holds, patch, there
from waiting import until

FOLDER = Path(os.environ.get("DRALAB_OPERATORS", ""))
CONTROLLER, WEBHOOK, INJECTOR = (
    FOLDER / f"cert-manager-{name}" for name in ("controller", "webhook", "cainjector")
)
PORT = free_port()
HOME = "cert-manager"
SERVICE = "cert-manager-webhook"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not CONTROLLER.is_file(), reason="DRALAB_OPERATORS names no cert-manager"),
    pytest.mark.dralab(services=[f"{HOME}/{SERVICE}=127.0.0.1:{PORT}"]),
]
ISSUERS = Resource("cert-manager.io", "v1", "issuers")
CERTIFICATES = Resource("cert-manager.io", "v1", "certificates")
REQUESTS = Resource("cert-manager.io", "v1", "certificaterequests")
# Its chart's, with the defaults.
HOOKS = """
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}WebhookConfiguration
metadata:
  name: cert-manager-webhook
  annotations:
    cert-manager.io/inject-ca-from-secret: cert-manager/cert-manager-webhook-ca
webhooks:
- name: webhook.cert-manager.io
  rules:
  - {{apiGroups: {groups}, apiVersions: [v1], operations: {operations}, resources: ["{resources}"]}}
  admissionReviewVersions: [v1]
  matchPolicy: Equivalent
  timeoutSeconds: 30
  failurePolicy: Fail
  sideEffects: None
  clientConfig: {{service: {{name: cert-manager-webhook, namespace: cert-manager, path: {path}}}}}
"""


@pytest.fixture
def cert_manager(running_cluster, client, apply, start, kubeconfig):
    """Its CRDs, its webhooks and its three programs."""
    sources = gomodules.sources("github.com/cert-manager/cert-manager", "v1.21.1")
    for each in sorted((sources / "deploy/crds").glob("*.yaml")):
        apply(each)
    client.create(NAMESPACES, {"metadata": {"name": HOME}})
    apply(
        HOOKS.format(
            kind="Validating",
            groups="[cert-manager.io, acme.cert-manager.io]",
            operations="[CREATE, UPDATE]",
            resources="*/*",
            path="/validate",
        )
    )
    apply(
        HOOKS.format(
            kind="Mutating",
            groups="[cert-manager.io]",
            operations="[CREATE]",
            resources="certificaterequests",
            path="/mutate",
        )
    )
    common = [f"--kubeconfig={kubeconfig}"]
    serving = [
        f"--secure-port={PORT}",
        "--healthz-port=0",
        "--metrics-listen-address=0",
        f"--dynamic-serving-ca-secret-namespace={HOME}",
        f"--dynamic-serving-ca-secret-name={SERVICE}-ca",
        *(
            f"--dynamic-serving-dns-names={SERVICE}{rest}"
            for rest in ("", f".{HOME}", f".{HOME}.svc")
        ),
    ]
    start(WEBHOOK, *common, *serving)
    start(INJECTOR, *common, "--metrics-listen-address=0", f"--leader-election-namespace={HOME}")
    own = [
        f"--cluster-resource-namespace={HOME}",
        f"--leader-election-namespace={HOME}",
        "--metrics-listen-address=127.0.0.1:0",
    ]
    start(CONTROLLER, *common, *own)


def issued(client, name, revision):
    """The certificates in a Certificate's Secret, own one first, once that revision is ready."""
    found = there(client, CERTIFICATES, name)
    if not holds(found, "Ready") or found["status"].get("revision") != revision:
        return None
    secret = client.get(SECRETS, found["spec"]["secretName"], NAMESPACE)
    assert secret["type"] == "kubernetes.io/tls"
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    return x509.load_pem_x509_certificates(base64.b64decode(secret["data"]["tls.crt"]))


def dns_names(certificate):
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return found.value.get_values_for_type(x509.DNSName)


def certificate(name, issuer, **spec):
    """A Certificate whose Secret has its name."""
    return {
        "metadata": {"name": name},
        "spec": {"secretName": name, "issuerRef": {"name": issuer}, **spec},
    }


def test_an_authority_signs_itself_and_others_and_wrong_requests_are_refused(cert_manager, client):
    own = {"metadata": {"name": "self"}, "spec": {"selfSigned": {}}}
    until(lambda: admitted(client, ISSUERS, own, NAMESPACE))
    key = {"algorithm": "ECDSA", "size": 256}
    authority = certificate("root", "self", isCA=True, commonName="root", privateKey=key)
    client.create(CERTIFICATES, authority, NAMESPACE)
    [root] = until(lambda: issued(client, "root", 1))
    assert root.subject == root.issuer
    assert isinstance(root.public_key(), ec.EllipticCurvePublicKey)
    by = {"metadata": {"name": "lab"}, "spec": {"ca": {"secretName": "root"}}}
    client.create(ISSUERS, by, NAMESPACE)
    until(lambda: holds(there(client, ISSUERS, "lab"), "Ready"))
    client.create(
        CERTIFICATES, certificate("shop", "lab", dnsNames=["shop.example.org"]), NAMESPACE
    )
    [first] = until(lambda: issued(client, "shop", 1))
    first.verify_directly_issued_by(root)
    assert isinstance(first.public_key(), rsa.RSAPublicKey)
    assert dns_names(first) == ["shop.example.org"]
    # A changed spec is issued anew, with a new key.
    patch(client, CERTIFICATES, "shop", {"dnsNames": ["shop.example.org", "www.example.org"]})
    [second] = until(lambda: issued(client, "shop", 2))
    second.verify_directly_issued_by(root)
    assert dns_names(second) == ["shop.example.org", "www.example.org"]
    assert second.public_key() != first.public_key()
    # So is one whose Secret is gone.
    client.delete(SECRETS, "shop", NAMESPACE)
    [third] = until(lambda: issued(client, "shop", 3))
    assert third.serial_number != second.serial_number
    # The mutating webhook says who asked; the requests belong to their Certificate.
    requests = client.list(REQUESTS, NAMESPACE).items
    assert {each["metadata"]["ownerReferences"][0]["name"] for each in requests} == {"root", "shop"}
    assert all(each["spec"]["username"] for each in requests)
    # What the validating webhook refuses.
    words = r'admission webhook "webhook\.cert-manager\.io" denied the request: spec: Invalid value'
    with pytest.raises(ApiError, match=words):
        client.create(CERTIFICATES, certificate("wrong", "lab"), NAMESPACE)
    forged = {**requests[0], "metadata": {"name": "forged"}}
    forged["spec"] = {**forged["spec"], "username": "somebody"}
    made = client.create(REQUESTS, forged, NAMESPACE)
    assert made["spec"]["username"] == requests[0]["spec"]["username"]
    with pytest.raises(ApiError, match=r"spec\.username: Forbidden|cannot be changed"):
        patch(client, REQUESTS, "forged", {"username": "somebody"})

"""cert-manager's cainjector, alone: authorities are written into what calls webhooks and servers.

It is a module of its own in cert-manager's repository, which the module proxy does not serve:
DRALAB_OPERATORS names a folder with the program, under the name of its image.
"""

import base64
import os
from pathlib import Path

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import SECRETS
from operatorlab import NAMESPACE, certificate_of
from waiting import until

PROGRAM = Path(os.environ.get("DRALAB_OPERATORS", "")) / "cert-manager-cainjector"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not PROGRAM.is_file(), reason="DRALAB_OPERATORS names no cainjector"),
]
HOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False)
INJECTED = {"annotations": {"cert-manager.io/inject-ca-from-secret": f"{NAMESPACE}/authority"}}
SERVICE = {"namespace": NAMESPACE, "name": "mine"}


def test_an_authority_reaches_webhooks_and_aggregated_servers_and_follows_its_secret(
    running_cluster, client, start, kubeconfig, tmp_path
):
    flags = ["--leader-elect=false", "--metrics-listen-address=0"]
    start(PROGRAM, f"--kubeconfig={kubeconfig}", "--enable-certificates-data-source=false", *flags)
    hook = {
        "name": "pods.example.org",
        "clientConfig": {"service": SERVICE},
        "rules": [],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    client.create(HOOKS, {"metadata": {"name": "mine", **INJECTED}, "webhooks": [hook]})
    spec = {"group": "example.org", "version": "v1", "service": SERVICE}
    priorities = {"groupPriorityMinimum": 100, "versionPriority": 10}
    metadata = {"name": "v1.example.org", **INJECTED}
    client.create(SERVICES, {"metadata": metadata, "spec": {**spec, **priorities}})

    def bundles():
        [one] = client.get(HOOKS, "mine")["webhooks"]
        service = client.get(SERVICES, "v1.example.org")["spec"]
        found = [one["clientConfig"].get("caBundle"), service.get("caBundle")]
        return [base64.b64decode(each or "") for each in found]

    first, second = (
        certificate_of("mine", NAMESPACE, tmp_path / name).strip() for name in ("first", "second")
    )
    data = {"ca.crt": base64.b64encode(first).decode()}
    allowed = {"annotations": {"cert-manager.io/allow-direct-injection": "true"}}
    secret = {"metadata": {"name": "authority", **allowed}, "data": data}
    client.create(SECRETS, secret, NAMESPACE)
    until(lambda: all(first in each for each in bundles()))
    data = {"ca.crt": base64.b64encode(second).decode()}
    client.patch(SECRETS, "authority", {"data": data}, NAMESPACE)
    # The one before stays beside it, for servers that still have its certificates.
    until(lambda: all(first in each and second in each for each in bundles()))

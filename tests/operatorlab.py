"""What tests of other people's operators share: manifests as their projects publish them, and waits.

The programs themselves are started by `tests/conformance/operators/conftest.py`.
"""

import base64
import shutil
import socket
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from authorities import Authority
from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, WallClock
from dralab.objects.conditions import is_true
from dralab.runtime.resources import PODS

NAMESPACE = "default"
HOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def free_port():
    """A port that nothing listens on at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def there(client, resource, name, namespace=NAMESPACE):
    """Return an object; nothing while it is not there."""
    try:
        return client.get(resource, name, namespace)
    except ApiError:
        return None


def names(client, resource, namespace=NAMESPACE):
    """The names of all objects of a kind in a namespace."""
    return {each["metadata"]["name"] for each in client.list(resource, namespace).items}


def patch(client, resource, name, spec, namespace=NAMESPACE):
    """Merge something into an object's spec."""
    client.patch(resource, name, {"spec": spec}, namespace)


def holds(found, kind):
    """Whether a condition of an object is true."""
    return bool(found) and is_true(found, kind)


def running(client, namespace=NAMESPACE):
    """The names of the pods that run."""
    return {
        pod["metadata"]["name"]
        for pod in client.list(PODS, namespace).items
        if (pod.get("status") or {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    }


def admitted(client, resource, body, namespace=""):
    """Create an object; nothing where a webhook does not answer yet."""
    try:
        return client.create(resource, body, namespace)
    except ApiError as error:
        if "failed calling webhook" not in error.message:
            raise
        return None


def configuration(path, port, group, folder, **more):
    """Write the file that says to a program where to listen, and nothing of its work."""
    said = {
        "apiVersion": f"config.{group}",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "127.0.0.1:0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        **more,
    }
    path.write_text(yaml.safe_dump(said))
    return path


def kustomized(kubectl, folder):
    """What `kubectl kustomize` makes of a project's own folder, without the Deployment.

    The program of the Deployment runs beside the cluster, and not in a simulated container.
    """
    with tempfile.TemporaryDirectory() as place:
        # Modules are read-only, and a kustomization may name folders beside its own.
        whole = Path(place) / "config"
        shutil.copytree(folder.parent, whole, copy_function=shutil.copyfile)
        words = [kubectl, "kustomize", str(whole / folder.name)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return without_deployments(done.stdout)


def without_deployments(text):
    """The objects of a project's manifest, but for the Deployments, whose programs run beside."""
    found = yaml.load_all(text, yaml.CSafeLoader)
    return [each for each in found if each and each["kind"] != "Deployment"]


def certificate_of(service, namespace, folder):
    """Put `tls.crt` and `tls.key` for a Service into a folder; return the authority's PEM."""
    ca = Authority("operators", today())
    name = x509.DNSName(f"{service}.{namespace}.svc")
    certificate, key = ca.issue(service, usage=ExtendedKeyUsageOID.SERVER_AUTH, names=[name])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "tls.key").write_bytes(pem_of(key))
    return ca.pem


def today():
    """The time of this machine: programs of others look at it, not at a test's."""
    return datetime.fromtimestamp(WallClock().now() / SECOND, UTC)


def pem_of(key):
    """A private key as a server reads it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def trusting(manifests, pem):
    """The manifests, with an authority in all webhooks, as cert-manager injects it."""
    bundle = base64.b64encode(pem).decode()
    for each in manifests:
        if each["kind"] in HOOK_KINDS:
            for hook in each["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
    return manifests


def mounted(client, resource, name, namespace, folder):
    """Whether a Secret has data; if so, its files are in the folder, as a kubelet mounts them."""
    data = (there(client, resource, name, namespace) or {}).get("data") or {}
    for key, value in data.items():
        (folder / key).write_bytes(base64.b64decode(value))
    return bool(data)

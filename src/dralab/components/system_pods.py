"""The pods that kubeadm creates in kube-system, for clients that expect them.

Nothing runs in them: nodes simulate their containers. The cluster works the same without them.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from dralab.api.status import ignoring
from dralab.api.yaml_documents import documents
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import DAEMON_SETS, DEPLOYMENTS, PODS, SERVICE_ACCOUNTS, SERVICES
from dralab.values.json_types import JsonDict

NAMESPACE: Final = "kube-system"
RESOURCES: Final[dict[str, Resource]] = {
    "DaemonSet": DAEMON_SETS,
    "Deployment": DEPLOYMENTS,
    "Pod": PODS,
    "Service": SERVICES,
    "ServiceAccount": SERVICE_ACCOUNTS,
}
# What kubelets start from files, with its image and CPU request.
STATIC: Final = (
    ("etcd", "registry.k8s.io/etcd:3.6.6-0", "100m"),
    ("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.2", "250m"),
    ("kube-controller-manager", "registry.k8s.io/kube-controller-manager:v1.36.2", "200m"),
    ("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.36.2", "100m"),
)


def load(client: Client, node: str) -> None:
    """Create missing objects. The control plane's pods are on `node`."""
    for obj in objects(node):
        with ignoring("AlreadyExists"):
            client.create(RESOURCES[obj["kind"]], obj, NAMESPACE)


def objects(node: str) -> Iterator[JsonDict]:
    """Yield the objects, in an order in which they can be created."""
    text = files("dralab.components").joinpath("data/system-pods.yaml").read_text("utf-8")
    for document in documents(text):
        if document.value is not None:
            yield document.value
    for name, image, cpu in STATIC:
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{node}",
                "namespace": NAMESPACE,
                "labels": {"component": name, "tier": "control-plane"},
            },
            "spec": {
                "nodeName": node,
                "hostNetwork": True,
                "priorityClassName": "system-node-critical",
                "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
                "containers": [
                    {
                        "name": name,
                        "image": image,
                        "command": [name],
                        "resources": {"requests": {"cpu": cpu}},
                    }
                ],
            },
        }

"""The vertical pod autoscaler: from what pods use to pods that request as much.

The test stands for the metrics server: an API behind an APIService, over TLS.
"""

import base64
import http.server
import json
import ssl
import threading
from datetime import timedelta

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, PODS
from dralab.values.quantity import parse
from operatorlab import NAMESPACE, certificate_of, free_port, running, today
from waiting import until

SYSTEM = "kube-system"
HOOK, METRICS = free_port(), free_port()
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.dralab(
        nodes=2,
        services=[
            f"{SYSTEM}/vpa-webhook=127.0.0.1:{HOOK}",
            f"{SYSTEM}/metrics-server=127.0.0.1:{METRICS}",
        ],
    ),
]
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False)
HOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
AUTOSCALERS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers")
GROUP = "metrics.k8s.io/v1beta1"
KIND = {"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
USED = {"cpu": "500m", "memory": "300Mi"}


@pytest.fixture
def metrics(client, tmp_path):
    """Serve the usage of all pods as metrics.k8s.io: each time a minute later."""
    pem = certificate_of("metrics-server", SYSTEM, tmp_path / "metrics")
    minutes = iter(range(1_000_000))

    def usage():
        at = today() + timedelta(minutes=next(minutes))
        return [
            {
                "metadata": {key: pod["metadata"][key] for key in ("name", "namespace")},
                "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "window": "30s",
                "containers": [{"name": "main", "usage": USED}],
            }
            for pod in client.list(PODS, NAMESPACE).items
        ]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kinds = {"kind": "APIResourceList", "groupVersion": GROUP, "resources": [KIND]}
            found = {"kind": "PodMetricsList", "apiVersion": GROUP, "metadata": {}}
            listed = self.path.partition("?")[0].endswith("/pods")
            body = json.dumps({**found, "items": usage()} if listed else kinds).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", METRICS), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "metrics/tls.crt", tmp_path / "metrics/tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield pem
    server.shutdown()
    server.server_close()


def requests_of(client):
    """What the containers of the pods that run request of the processor."""
    return [
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for pod in client.list(PODS, NAMESPACE).items
        if pod["metadata"]["name"] in running(client)
    ]


def test_pods_get_what_they_use(
    running_cluster, client, apply, start, operator, kubeconfig, metrics, tmp_path
):
    sources, recommender = operator("vpa-recommender")
    programs = {name: operator(name)[1] for name in ("vpa-updater", "vpa-admission-controller")}
    apply(sources / "deploy/vpa-v1-crd-gen.yaml")
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "caBundle": base64.b64encode(metrics).decode(),
    }
    spec |= {"service": {"namespace": SYSTEM, "name": "metrics-server", "port": 443}}
    spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
    client.create(API_SERVICES, {"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec})
    shared = (f"--kubeconfig={kubeconfig}", f"--address=127.0.0.1:{free_port()}")
    start(recommender, *shared, "--recommender-interval=1s", "--confidence-interval-cpu=1m")
    certificates = tmp_path / "hook"
    authority = certificate_of("vpa-webhook", SYSTEM, certificates)
    (certificates / "ca.crt").write_bytes(authority)
    start(
        programs["vpa-admission-controller"],
        f"--kubeconfig={kubeconfig}",
        f"--address=127.0.0.1:{free_port()}",
        f"--port={HOOK}",
        "--webhook-service=vpa-webhook",
        f"--client-ca-file={certificates}/ca.crt",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key={certificates}/tls.key",
        NAMESPACE=SYSTEM,
    )
    until(
        lambda: any(h["metadata"]["name"] == "vpa-webhook-config" for h in client.list(HOOKS).items)
    )
    labels = {"app": "web"}
    container = {"name": "main", "image": "nginx"}
    container["resources"] = {"requests": {"cpu": "10m", "memory": "10Mi"}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, NAMESPACE)
    until(lambda: requests_of(client) == ["10m", "10m"])
    before = running(client)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Recreate"}}
    client.create(AUTOSCALERS, {"metadata": {"name": "web"}, "spec": spec}, NAMESPACE)

    def recommended():
        """What the recommender wants the container to request of the processor."""
        status = client.get(AUTOSCALERS, "web", NAMESPACE).get("status", {})
        containers = status.get("recommendation", {}).get("containerRecommendations", ())
        return [each["target"]["cpu"] for each in containers]

    # What it uses, and a margin of 15 percent, in the classes of its histogram.
    until(lambda: [0.5 < parse(cpu) < 0.7 for cpu in recommended()] == [True])
    start(
        programs["vpa-updater"],
        f"--kubeconfig={kubeconfig}",
        f"--address=127.0.0.1:{free_port()}",
        "--updater-interval=1s",
    )
    # The updater evicts one pod at a time; the webhook changes those that follow.
    until(lambda: requests_of(client) == recommended() * 2)
    assert before.isdisjoint(running(client))
    pod = client.list(PODS, NAMESPACE).items[0]
    assert pod["metadata"]["annotations"]["vpaObservedContainers"] == "main"
    assert client.get(DEPLOYMENTS, "web", NAMESPACE)["spec"]["template"]["spec"]["containers"][0][
        "resources"
    ] == {"requests": {"cpu": "10m", "memory": "10Mi"}}

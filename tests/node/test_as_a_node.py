"""A node that may do no more than Kubernetes lets a kubelet do: user `system:node:NAME`."""

from pathlib import Path

import pytest
import yaml

from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.settings import AuthenticationFlags
from dralab.cli._connection import ClusterConnection
from dralab.cluster import Cluster, Options
from dralab.components import nodes
from dralab.contracts.plugin import PreparedDevice, PrepareResult
from dralab.kernel.randomness import Randomness
from dralab.node.kubelets import Kubelets
from dralab.node.node_spec import NodeSpec
from dralab.node.simulated_runtime import SimulatedRuntime
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS, EVENTS, NODES, PODS
from waiting import until

CLAIM = {
    "metadata": {"name": "c"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}},
}
RESULT = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}


class Gpu:
    driver = "gpu.example.com"

    def prepare(self, claims):
        device = PreparedDevice(requests=("r",), pool="n1", device="gpu-0", cdi_ids=())
        return {ref.uid: PrepareResult(devices=(device,)) for ref in claims}

    def unprepare(self, claims):
        return {ref.uid: "" for ref in claims}

    def health(self):
        return ()


@pytest.fixture
def cluster(tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('of-the-node,system:node:n1,u-1,"system:nodes"\n')
    options = Options(
        tls=True,
        authentication=AuthenticationFlags(token_auth_file=tokens),
        authorization=["Node", "RBAC"],
        service_accounts=False,
    )
    with Cluster(options) as running:
        yield running


@pytest.fixture
def kubelet(cluster, tmp_path):
    """A node with the permissions of its name alone."""
    engine = LiveEngine(name="n1", workers=2)
    client = cluster.client_of("system:node:n1")
    manager = Manager(engine, client, Randomness(1))
    kubelets = Kubelets(manager, SimulatedRuntime(engine), only="n1")
    sockets = []

    def on_node(kubelet):
        pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
        nodes.listen(kubelet, tmp_path, sockets)
        kubelet.register(Gpu())

    kubelets.on_node = on_node
    made = kubelets.add_node(NodeSpec(name="n1"))
    made.serve(Refused())
    engine.soon(manager.start)
    engine.start()
    yield made
    manager.stop()
    engine.stop()
    kubelets.stop()
    for each in sockets:
        each.stop()


class Refused:
    """An endpoint of which a kubelet may not leave the Secret."""

    address = ("127.0.0.1", 10250)

    def publish(self, client, node):
        name = node["metadata"]["name"]
        raise ApiError("Forbidden", f'secrets "{name}" is forbidden')


def test_a_node_without_further_rights_registers_and_runs_pods_with_claims(cluster, kubelet):
    admin = cluster.client
    until(lambda: any(n["status"].get("conditions") for n in admin.list(NODES).items))
    claim = admin.create(CLAIMS, CLAIM, "default")
    container = {"name": "c", "image": "x", "command": ["sh", "-c", "sleep 1d"]}
    spec = {
        "nodeName": "n1",
        "containers": [container | {"resources": {"claims": [{"name": "c"}]}}],
        "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    }
    pod = admin.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    claim["status"] = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [user]}
    admin.update(CLAIMS, claim, subresource="status")

    def running():
        return admin.get(PODS, "p", "default").get("status", {}).get("phase") == "Running"

    until(running)
    reasons = {event["reason"] for event in admin.list(EVENTS).items}
    assert "EndpointNotPublished" in reasons


def test_a_client_that_may_not_list_nodes_connects(cluster, tmp_path):
    document = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    document["users"][0]["user"] = {"token": "of-the-node"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    client = ClusterConnection(kubeconfig=path, context="", server="").client()
    with pytest.raises(ApiError, match="only its own Node object"):
        client.list(NODES)
    client.close()

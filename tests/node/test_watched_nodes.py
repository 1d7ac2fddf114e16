"""What a node tells those who watch it: metrics, the pod-resources socket, its plugins."""

import tempfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dralab import SimulatedCluster
from dralab.cli.main import main
from dralab.contracts.plugin import PluginError
from dralab.drivers.fake.gpu import FakeGpus
from dralab.kernel.clock import SECOND
from dralab.node.endpoint import EndpointServer
from dralab.node.metrics import NodeMetrics
from dralab.runtime.resources import CLAIMS, PODS

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

from dralab.contracts import wire  # noqa: E402 - after the check above
from dralab.node.pod_resources import SERVICE, PodResources  # noqa: E402

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec:
  devices:
    requests:
    - {name: one, exactly: {deviceClassName: gpu.example.com}}
    - {name: other, exactly: {deviceClassName: gpu.example.com}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  resourceClaims: [{name: c, resourceClaimName: c}]
  containers:
  - name: first
    image: x
    command: [sh, -c, "sleep 1d"]
    resources: {claims: [{name: c, request: one}]}
  - {name: without, image: x, command: [sh, -c, "sleep 1d"]}
"""


@pytest.fixture
def lab():
    return SimulatedCluster(nodes=["n1"], drivers=[lambda node: FakeGpus(node, count=2)])


@pytest.fixture
def root():
    """A short path: sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dralab") as name:
        yield Path(name)


def metrics(lab):
    claims = lab.kubelets.nodes["n1"].claims
    lines = claims.metrics.text(claims.in_use()).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_claims_in_use_go_up_and_down(lab):
    assert metrics(lab) == {'dra_resource_claims_in_use{driver_name="<any>"}': "0"}
    lab.create(CLAIM)
    found = metrics(lab)
    assert found['dra_resource_claims_in_use{driver_name="<any>"}'] == "1"
    assert found['dra_resource_claims_in_use{driver_name="gpu.example.com"}'] == "1"
    labels = '{is_error="false",operation_name="PrepareResources"}'
    assert found[f"dra_operations_duration_seconds_count{labels}"] == "1"
    lab.delete("default", "p")
    found = metrics(lab)
    assert 'dra_resource_claims_in_use{driver_name="gpu.example.com"}' not in found
    labels = labels.replace("Prepare", "Unprepare")
    assert found[f"dra_operations_duration_seconds_count{labels}"] == "1"


def test_failed_operations_count_as_errors(lab, monkeypatch):
    plugin = lab.kubelets.nodes["n1"].plugins.get("gpu.example.com")

    def refuse(_claims):
        raise PluginError("no")

    monkeypatch.setattr(plugin, "prepare", refuse)
    lab.create(CLAIM)
    labels = '{is_error="true",operation_name="PrepareResources"}'
    assert int(metrics(lab)[f"dra_operations_duration_seconds_count{labels}"]) > 1


def test_durations_fall_into_the_buckets_of_the_kubelet():
    told = NodeMetrics()
    for seconds in (0.05, 0.1, 1, 45):
        told.call('a"b', "/s/M", "OK", int(seconds * SECOND))
    lines = told.text({}).splitlines()
    common = 'driver_name="a\\"b",grpc_status_code="OK",method_name="/s/M"'
    name = "dra_grpc_operations_duration_seconds"
    assert f"# TYPE {name} histogram" in lines
    assert f'{name}_bucket{{{common},le="0.1"}} 2' in lines
    assert f'{name}_bucket{{{common},le="+Inf"}} 4' in lines
    assert f"{name}_count{{{common}}} 4" in lines
    assert len([line for line in lines if "_bucket" in line]) == 16


def ask(channel, verb, request, answer):
    method = channel.unary_unary(
        f"/{SERVICE}/{verb}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return method(request, timeout=150)


def test_monitoring_agents_learn_the_devices_of_containers(lab, root):
    lab.create(CLAIM)
    server = PodResources(lab.kubelets.nodes["n1"], root)
    server.start()
    m = wire.pod_resources()
    with grpc.insecure_channel(wire.address(str(root / "pod-resources/kubelet.sock"))) as channel:
        listed = ask(channel, "List", m.ListPodResourcesRequest(), m.ListPodResourcesResponse)
        (pod,) = listed.pod_resources
        assert (pod.namespace, pod.name) == ("default", "p")
        first, without = pod.containers
        assert (first.name, without.name) == ("first", "without")
        assert not without.dynamic_resources
        (claim,) = first.dynamic_resources
        assert (claim.claim_namespace, claim.claim_name) == ("default", "c")
        # As the kubelet, the whole claim, whichever of its requests the container names.
        devices = [(d.driver_name, d.pool_name, d.device_name) for d in claim.claim_resources]
        assert devices == [("gpu.example.com", "n1", f"gpu-{n}") for n in (0, 1)]
        uid = lab.client.get(CLAIMS, "c", "default")["metadata"]["uid"]
        assert [d.name for d in claim.claim_resources[1].cdi_devices] == [
            f"k8s.gpu.example.com/gpu={uid}-gpu-1",
            "k8s.gpu.example.com/gpu=common",
        ]
        one = m.GetPodResourcesRequest(pod_namespace="default", pod_name="p")
        got = ask(channel, "Get", one, m.GetPodResourcesResponse)
        assert got.pod_resources == pod
        none = m.GetPodResourcesRequest(pod_namespace="default", pod_name="q")
        with pytest.raises(grpc.RpcError) as caught:
            ask(channel, "Get", none, m.GetPodResourcesResponse)
        assert caught.value.details() == "pod q in namespace default not found"
        request, answer = m.AllocatableResourcesRequest(), m.AllocatableResourcesResponse
        assert ask(channel, "GetAllocatableResources", request, answer) == answer()
        # Pods that have ended have nothing any more.
        lab.delete("default", "p")
        assert not ask(
            channel, "List", m.ListPodResourcesRequest(), m.ListPodResourcesResponse
        ).pod_resources
        assert not lab.client.list(PODS, "default").items
    server.stop()
    assert not (root / "pod-resources/kubelet.sock").exists()


def test_of_init_containers_only_sidecars_are_listed(lab, root):
    pod = yaml.safe_load(CLAIM.partition("---")[2])
    names = {"migrate": {}, "beside": {"restartPolicy": "Always"}}
    pod["spec"]["initContainers"] = [{"name": name, **more} for name, more in names.items()]
    found = PodResources(lab.kubelets.nodes["n1"], root)._pod(pod)
    assert [each.name for each in found.containers] == ["beside", "first", "without"]


@pytest.fixture
def endpoint(lab, root):
    found = EndpointServer(lab.kubelets, "n1", root / "pki", "127.0.0.1", 0)
    found.start()
    yield found
    found.stop()


def status(root, *more):
    arguments = ["node", "--name", "n1", "--root", str(root), "--server", "http://127.0.0.1:9"]
    return CliRunner().invoke(main, [*arguments, "--drivers", *more])


@pytest.mark.usefixtures("endpoint")
def test_the_status_of_a_node_lists_its_drivers(lab, root):
    sockets = [
        {
            "socket": "/r/a-reg.sock",
            "driver": "a.example.com",
            "version": "v1.DRAPlugin",
            "endpoint": "/r/a.sock",
            "connected": True,
        },
        {"socket": "/r/b-reg.sock", "error": "failed to dial socket /r/b-reg.sock"},
    ]
    lab.kubelets.nodes["n1"].plugin_sockets = lambda: sockets
    result = status(root)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "DRIVER         VERSION       STATE      ENDPOINT",
        "a.example.com  v1.DRAPlugin  Connected  /r/a.sock",
    ]
    text = "not registered: /r/b-reg.sock: failed to dial socket /r/b-reg.sock\n"
    assert result.stderr == text


def test_the_status_of_a_node_that_does_not_run_is_bad_input(root):
    result = status(root)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: no node runs with --root {root}: ")

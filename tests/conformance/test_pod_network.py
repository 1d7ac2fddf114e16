"""Pods with networks of their own, on this machine: real namespaces, and real kube-proxy and DNS."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from dralab.api.status import ApiError
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes
from dralab.node import mount_namespaces
from dralab.node.containers import ContainerStartError
from dralab.node.network import cluster_network
from dralab.node.network.addresses import ClusterRange
from dralab.node.network.cluster_network import ClusterNetwork, NetworkUnavailable
from dralab.node.network.namespaces import PodNamespaces, problem
from dralab.node.process_launch import inside
from dralab.node.resolv_conf import ClusterDns
from dralab.runtime.resources import EVENTS, NODES, PODS, SERVICES, Resource
from waiting import until

CIDR = "10.199.0.0/16"
ROOT = Path(__file__).parents[2]
WEB = (
    "import http.server as h; h.HTTPServer(('', 8080), h.SimpleHTTPRequestHandler).serve_forever()"
)

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        sys.platform != "linux" or os.getuid() != 0, reason="networks of pods need Linux and root"
    ),
    pytest.mark.skipif(
        sys.platform == "linux" and bool(problem() or mount_namespaces.problem()),
        reason="this machine allows no namespaces",
    ),
    pytest.mark.skipif(shutil.which("ip") is None, reason="`ip` (iproute2) is not installed"),
]
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="`nft` is not installed")


@pytest.fixture(scope="module")
def network():
    found = ClusterNetwork(ClusterRange.parse(CIDR))
    found.start()
    yield found
    found.close()
    assert not Path("/sys/class/net/dra0ac70000").exists()


@pytest.fixture(scope="module")
def lab(network, tmp_path_factory):
    programs = {
        "registry.k8s.io/kube-proxy": _program("DRALAB_KUBE_PROXY", "kube-proxy"),
        "registry.k8s.io/coredns/coredns": _program("DRALAB_COREDNS", "coredns"),
    }
    wanted = NodeOptions(
        nodes=2,
        runtime=PROCESS,
        root=tmp_path_factory.mktemp("nodes"),
        namespaces=True,
        network=network,
        dns=ClusterDns("10.0.0.10"),
        images={image: [path] for image, path in programs.items() if path},
    )
    options = Options(
        tls=True,
        pods_host=network.machine,
        pods_device=network.interface,
        own_objects=True,
        mount_tokens=True,
        authorization=("Node", "RBAC"),
    )
    with Cluster(options, components=[ControlPlane(), Nodes(wanted)]) as cluster:
        until(lambda: len(cluster.client.list(NODES).items) == 2)
        yield Lab(cluster)


def _program(variable, name):
    return os.environ.get(variable) or shutil.which(name)


class Lab:
    def __init__(self, cluster):
        self.client = cluster.client
        self.port = int(cluster.url.rpartition(":")[2])

    def run(self, name, script, *, node="node-0", container=None, **spec):
        """Start a pod that runs a script."""
        command = {"name": "c", "image": "x", "command": ["sh", "-c", script], **(container or {})}
        body = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "containers": [command],
                "nodeName": node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        self.client.create(PODS, body, "default")

    def pod(self, name):
        return self.client.get(PODS, name, "default")

    def ready(self, name):
        """Return a pod's address once it is ready."""
        until(
            lambda: any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in self.pod(name)["status"].get("conditions") or ()
            )
        )
        return self.pod(name)["status"]["podIP"]

    def said(self, name, script, **spec):
        """Return the last words of a pod that runs a script to its end."""
        told = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        self.run(name, f"({script}) > /dev/termination-log 2>&1", container=told, **spec)
        until(lambda: self.pod(name)["status"]["phase"] in {"Succeeded", "Failed"})
        state = self.pod(name)["status"]["containerStatuses"][0]["state"]
        return state["terminated"].get("message", "")


@pytest.fixture(scope="module")
def web(lab):
    """The address of a pod on the second node that serves HTTP."""
    probe = {"readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1}}
    command = {"command": [sys.executable, "-c", WEB], "workingDir": "/", **probe}
    lab.run("web", "", node="node-1", container=command)
    return lab.ready("web")


def fetch(url):
    return f"{sys.executable} -c \"import urllib.request as u; print(u.urlopen('{url}', timeout=9).status)\""


def test_pods_reach_each_other_and_this_machine_them(lab, web):
    assert lab.said("one", fetch(f"http://{web}:8080/")) == "200\n"
    # In the network of its node the pod has that node's address.
    assert lab.said("host", fetch(f"http://{web}:8080/"), hostNetwork=True) == "200\n"
    with urllib.request.urlopen(f"http://{web}:8080/", timeout=9) as answer:
        assert answer.status == 200
    nodes = {each["metadata"]["name"]: each for each in lab.client.list(NODES).items}
    address = nodes["node-0"]["status"]["addresses"][0]["address"]
    assert lab.pod("host")["status"]["podIP"] == lab.pod("one")["status"]["hostIP"] == address
    assert web.rpartition(".")[0] == nodes["node-1"]["spec"]["podCIDR"].rpartition(".")[0]


def test_a_pod_finds_the_server_and_its_name_server(lab):
    script = (
        f'{sys.executable} -c "import os, socket; e = os.environ; '
        "socket.create_connection((e['KUBERNETES_SERVICE_HOST'], "
        "e['KUBERNETES_SERVICE_PORT']), 9); print(e['KUBERNETES_SERVICE_HOST'])\"; "
        "cat /etc/resolv.conf"
    )
    assert lab.said("finds", script).splitlines()[:3] == [
        "10.199.0.1",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "nameserver 10.0.0.10",
    ]


def test_other_machines_do_not_reach_the_server_at_its_address_for_pods(lab):
    """Another machine may send packets to any address of this one."""
    other = PodNamespaces.new()
    run_ip = cluster_network.run_ip
    run_ip([f"link add dratest type veth peer name eth0 netns {other.path}", "link set dratest up"])
    try:
        run_ip(["addr add 198.51.100.1/30 dev dratest"])
        lines = ["addr add 198.51.100.2/30 dev eth0", "link set eth0 up"]
        run_ip([*lines, "route add default via 198.51.100.1"], other)

        def connect(port):
            with other.socket() as line:
                line.settimeout(9)
                line.connect(("10.199.0.1", port))

        with socket.create_server(("10.199.0.1", 0)) as open_to_all:
            connect(open_to_all.getsockname()[1])
        with pytest.raises(ConnectionRefusedError):
            connect(lab.port)
    finally:
        run_ip(["link delete dratest"])
        other.close()


def test_a_pods_parameters_are_its_own(lab):
    path = "/proc/sys/kernel/shm_rmid_forced"
    before = Path(path).read_text()
    sysctls = [{"name": "kernel.shm_rmid_forced", "value": "1"}]
    assert lab.said("set", f"cat {path}", securityContext={"sysctls": sysctls}) == "1\n"
    assert Path(path).read_text() == before
    lab.run(
        "forbidden", "true", securityContext={"sysctls": [{"name": "vm.swappiness", "value": "1"}]}
    )
    until(lambda: lab.pod("forbidden")["status"]["phase"] == "Failed")
    status = lab.pod("forbidden")["status"]
    why = 'forbidden sysctl: "vm.swappiness" not allowlisted'
    assert (status["reason"], status["message"]) == ("SysctlForbidden", f"Pod was rejected: {why}")
    until(
        lambda: [e for e in lab.client.list(EVENTS).items if e.get("reason") == "SysctlForbidden"]
    )


@needs_nft
def test_a_port_of_a_node_leads_to_the_pod_at_its_address_alone(lab):
    for name, host in (("here", "127.0.0.1"), ("there", "10.199.0.3")):
        port = {"containerPort": 8080, "hostPort": 8090, "hostIP": host}
        probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
        serve = f"mkdir {name}; cd {name}; touch {name}; {sys.executable} -m http.server 8080"
        lab.run(name, serve, container={"ports": [port], "readinessProbe": probe})
        lab.ready(name)
    for name, host in (("here", "127.0.0.1"), ("there", "10.199.0.3")):
        found = fetch(f"http://{host}:8090/{name}")
        assert lab.said(f"asks-{name}", found, hostNetwork=True) == "200\n"
        lab.client.delete(PODS, name, "default")


@needs_nft
@pytest.mark.skipif(
    not _program("DRALAB_KUBE_PROXY", "kube-proxy") or not _program("DRALAB_COREDNS", "coredns"),
    reason="no kube-proxy and CoreDNS; DRALAB_KUBE_PROXY and DRALAB_COREDNS name them",
)
def test_kube_proxy_and_coredns_lead_to_a_service_by_its_name(lab, web):
    del web
    for file in ("kube-proxy.yaml", "coredns.yaml"):
        for body in yaml.safe_load_all((ROOT / "deploy/pod-network" / file).read_text()):
            group, _, version = body["apiVersion"].rpartition("/")
            plural = body["kind"].lower() + "s"
            kind = Resource(group, version, plural, namespaced="namespace" in body["metadata"])
            try:
                lab.client.create(kind, body, body["metadata"].get("namespace", ""))
            except ApiError as error:
                assert error.reason == "AlreadyExists"  # noqa: PT017 - system:coredns may be there
    ports = [{"port": 80, "targetPort": 8080, "nodePort": 30080}]
    spec = {"selector": {"app": "web"}, "ports": ports, "type": "NodePort"}
    lab.client.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, "default")

    def ready():
        pods = lab.client.list(PODS, "kube-system").items
        conditions = [each["status"].get("conditions") or () for each in pods]
        return len(pods) == 4 and all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in each) for each in conditions
        )

    until(ready)
    again = (
        f"until {fetch('http://web.default.svc.cluster.local/')}; do sleep 0.2; done 2>/dev/null"
    )
    for node in ("node-0", "node-1"):
        assert lab.said(f"named-{node}", again, node=node) == "200\n"
    assert lab.said("node-port", fetch("http://10.199.0.3:30080/"), node="node-1") == "200\n"


def test_the_network_of_a_pod_that_has_ended_leads_to_no_other(network):
    node = network.add_node("node-0")

    def place(uid):
        return node.add_pod({"metadata": {"uid": uid}, "spec": {"containers": []}})

    first = place("first")
    first.namespaces.socket().close()
    node.forget_pod("first")
    second = place("second")  # with the same numbers of files
    with pytest.raises(OSError, match="the pod has ended"):
        first.namespaces.socket()
    with inside(second), pytest.raises(ContainerStartError), inside(first):
        raise AssertionError("it is gone")
    assert second.ip != first.ip
    node.forget_pod("second")


def test_two_clusters_have_different_networks(network):
    for cidr, why in (
        (CIDR, "another cluster"),
        ("10.199.4.0/22", "overlaps with this machine's route"),
    ):
        other = ClusterNetwork(ClusterRange.parse(cidr))
        with pytest.raises(NetworkUnavailable, match=why):
            other.start()
    assert cluster_network.run_ip(["route get 10.199.1.1"]) is None, (
        "the first one's is still there"
    )
    assert network.router is not None


def test_a_killed_server_leaves_no_interface(tmp_path):
    command = [
        sys.executable, "-m", "dralab", "up", "--nodes", "1", "--runtime", "process",
        "--mount-namespaces", "--root", tmp_path, "--listen", "127.0.0.1:0", "--data", ":memory:",
        "--empty", "--cluster-cidr", "10.198.0.0/16",
    ]  # fmt: skip
    interface = Path("/sys/class/net/dra0ac60000")
    for number in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout.readline().startswith(b"ready: ")
            assert interface.exists()
            process.send_signal(number)
        until(lambda: not interface.exists())


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="`setpriv` is not installed")
@pytest.mark.parametrize("capability", ["net_admin", "sys_admin"])
def test_without_a_capability_the_command_says_which_it_needs(capability):
    program = (
        "from dralab.node.network.addresses import ClusterRange as R\n"
        "from dralab.node.network.cluster_network import ClusterNetwork, NetworkUnavailable\n"
        "try:\n    ClusterNetwork(R.parse('10.197.0.0/16')).start()\n"
        "except NetworkUnavailable as error:\n    print(error)"
    )
    drop = ["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"]
    told = subprocess.run(
        [*drop, sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.endswith("run as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN\n")

"""NRI plugins: how they connect, what they are told, and what they change."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from dralab.cluster import Cluster, Options
from dralab.contracts import wire
from dralab.kernel.randomness import Randomness
from dralab.node.cpu_lists import cpus_of
from dralab.node.kubelets import Kubelets
from dralab.node.node_spec import NodeSpec
from dralab.node.nri import plugins as nri_plugins
from dralab.node.nri.hooks import NodeHooks
from dralab.node.nri.plugins import PLUGIN, RUNTIME
from dralab.node.nri.trunk import (
    FRAME,
    HEADER,
    MOST_SERVED,
    REQUEST,
    TO_PLUGIN,
    TO_RUNTIME,
    CallError,
    Trunk,
    TrunkError,
)
from dralab.node.process_runtime import ProcessRuntime
from dralab.node.simulated_runtime import SimulatedRuntime
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.resources import EVENTS, NODES, PODS
from waiting import until

pytest.importorskip("google.protobuf", reason="the extra dralab[grpc] is not installed")

OLD_METHODS = {"Configure", "Synchronize", "CreateContainer", "StopContainer", "StateChange"}
EVENT_NAMES = {number: name for name, number in nri_plugins.EVENTS.items()}


class Plugin:
    """A plugin at the other end: notes what it is told, answers what `replies` say."""

    def __init__(self, path, name="cpu", index="10", *, old=False, events=0):
        self.told, self.replies, self.events, self.old = [], {}, events, old
        self.synchronized = threading.Event()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        methods = OLD_METHODS if old else {*nri_plugins.EVENTS, "Configure", "Synchronize"}
        handlers = {f"{PLUGIN}/{name}": self._handler(name) for name in methods}
        self.trunk = Trunk(connection, handlers, calls_on=TO_RUNTIME, serves_on=TO_PLUGIN)
        self.trunk.start()
        request = wire.nri().RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        self.call("RegisterPlugin", request)

    def call(self, method, request):
        return self.trunk.call(RUNTIME, method, request.SerializeToString(), 5)

    def _handler(self, method):
        def answer(data):
            m = wire.nri()
            if method == "Configure":
                return m.ConfigureResponse(events=self.events).SerializeToString()
            if method == "Synchronize":
                request = m.SynchronizeRequest.FromString(data)
                self.told.append((method, [c.name for c in request.containers]))
                self.synchronized.set()
                return b""
            about = m.About.FromString(data)
            name = method
            if method == "StateChange":
                change = m.StateChangeEvent.FromString(data)
                name, about = EVENT_NAMES[change.event], change
            self.told.append((name, about.container.name or about.pod.name))
            reply = self.replies.get(name)
            return reply(about) if reply else b""

        return answer

    def methods(self):
        return [name for name, _ in self.told]


class Lab:
    def __init__(self, path, runtime):
        self.cluster = Cluster(Options(service_accounts=False)).__enter__()
        self.client = self.cluster.client
        self.engine = LiveEngine(name="n1", workers=2)
        manager = self.manager = Manager(self.engine, self.client, Randomness(1))
        self.runtime = runtime(self.engine)
        self.kubelets = Kubelets(manager, self.runtime, only="n1")
        self.kubelet = self.kubelets.add_node(NodeSpec(name="n1"))
        self.path = path / "nri.sock"
        self.hooks = self.kubelet.hooks = NodeHooks(self.kubelet, self.path)
        self.hooks.start()
        self.engine.soon(manager.start)
        self.engine.start()
        until(lambda: any(n["status"].get("conditions") for n in self.client.list(NODES).items))
        self.plugins = []

    def plugin(self, *args, **options):
        found = Plugin(self.path, *args, **options)
        self.plugins.append(found)
        until(lambda: len(self.hooks.plugins.names) == len(self.plugins))
        return found

    def run(self, name, script="sleep 1d", phase="Running", **more):
        container = {"name": f"{name}-c", "image": "x", "command": ["sh", "-c", script], **more}
        spec = {
            "nodeName": "n1",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")
        until(lambda: self.phase(name) == phase)

    def phase(self, name):
        return self.client.get(PODS, name, "default").get("status", {}).get("phase")

    def log(self, name):
        pod = self.client.get(PODS, name, "default")
        run = self.kubelets.find_container(pod, f"{name}-c")
        return [line for _, line in run.log.read()[0]]

    def delete(self, name):
        self.client.delete(PODS, name, "default")
        until(lambda: not self.client.list(PODS).items)

    def events(self, reason):
        return [e["message"] for e in self.client.list(EVENTS).items if e["reason"] == reason]

    def stop(self):
        self.hooks.stop()
        self.manager.stop()
        self.engine.stop()
        if isinstance(self.runtime, ProcessRuntime):
            self.runtime.stop()
        self.kubelets.stop()
        self.cluster.__exit__(None, None, None)
        for each in self.plugins:
            each.trunk.close()


@pytest.fixture
def make():
    made = []
    with tempfile.TemporaryDirectory(prefix="nri") as name:

        def new(runtime=SimulatedRuntime):
            made.append(Lab(Path(name), runtime))
            return made[-1]

        yield new
        for each in made:
            each.stop()


LIFE = [
    "Synchronize",
    "RunPodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
]


@pytest.mark.parametrize("old", [False, True], ids=["now", "before-0.12"])
def test_a_plugin_follows_the_life_of_a_pod(make, old):
    lab = make()
    plugin = lab.plugin(old=old)
    lab.run("p")
    until(lambda: "PostStartContainer" in plugin.methods())
    lab.delete("p")
    until(lambda: len(plugin.told) >= len(LIFE))
    assert plugin.methods() == LIFE
    assert dict(plugin.told)["CreateContainer"] == "p-c"
    assert dict(plugin.told)["StopPodSandbox"] == "p"


def test_a_plugin_is_told_only_what_it_asked_for_and_of_what_runs_already(make):
    lab = make()
    lab.run("before")
    plugin = lab.plugin(events=1 << 3 | 1 << 9)
    assert plugin.told == [("Synchronize", ["before-c"])]
    lab.run("p")
    lab.client.delete(PODS, "p", "default")
    until(lambda: len(plugin.told) >= 3)
    assert plugin.told[1:] == [("CreateContainer", "p-c"), ("StopContainer", "p-c")]


def adjusting(**fields):
    def reply(_about):
        m = wire.nri()
        return m.CreateContainerResponse(adjust=m.ContainerAdjustment(**fields)).SerializeToString()

    return reply


def test_an_adjustment_reaches_the_container_and_is_told_in_an_event(make, tmp_path):
    lab = make(ProcessRuntime)
    (tmp_path / "file").write_text("mounted")
    m = wire.nri()
    plugin = lab.plugin()
    cpu = m.LinuxResources(cpu=m.LinuxCPU(cpus="0"))
    plugin.replies["CreateContainer"] = adjusting(
        env=[m.KeyValue(key="ADDED", value="yes"), m.KeyValue(key="-GONE")],
        mounts=[m.Mount(destination="/data", source=str(tmp_path), type="bind")],
        linux=m.LinuxContainerAdjustment(resources=cpu),
    )
    script = (
        'echo $ADDED-$GONE; cat $DRALAB_ROOT/data/file; grep -o "allowed_list.*" /proc/self/status'
    )
    lab.run("p", f"{script}", "Succeeded", env=[{"name": "GONE", "value": "x"}])
    written = "\n".join(lab.log("p"))
    assert "yes-" in written
    assert "yes-x" not in written
    assert "mounted" in written
    (text,) = until(lambda: lab.events("NRIAdjusted"))
    assert text == (
        "Container p-c: NRI plugin 10-cpu set variable ADDED; no variable GONE; "
        f"a mount of {tmp_path} at /data; cpuset 0"
    )


def test_plugins_are_called_by_index_and_may_not_contradict_each_other(make):
    lab = make()
    m = wire.nri()
    order = []
    for index in ("20", "05"):

        def reply(about, index=index):
            order.append(index)
            return adjusting(env=[m.KeyValue(key="A", value=index)])(about)

        lab.plugin(index=index).replies["CreateContainer"] = reply
    lab.run("p", phase="Pending")
    (text,) = until(lambda: lab.events("Failed"))
    assert order[:2] == ["05", "20"]
    assert text == 'Error: NRI plugins "20-cpu" and "05-cpu" both tried to set env A'


def test_a_plugin_that_refuses_keeps_the_container_from_starting(make):
    lab = make()

    def refuse(_about):
        raise ValueError("no CPUs left")

    lab.plugin().replies["CreateContainer"] = refuse
    lab.run("p", phase="Pending")
    (text,) = until(lambda: lab.events("Failed"))
    assert text == "Error: NRI plugin 10-cpu: CreateContainer: no CPUs left"


def test_a_plugin_that_does_not_answer_is_dropped_and_the_pod_starts(make, monkeypatch):
    monkeypatch.setattr(nri_plugins, "REQUEST", 0.2)
    lab = make()
    over = threading.Event()
    lab.plugin().replies["CreateContainer"] = lambda _about: over.wait(10) or b""
    lab.run("p")
    assert lab.hooks.plugins.names == []
    over.set()


def test_a_plugin_changes_and_evicts_running_containers(make):
    lab = make(ProcessRuntime)
    m = wire.nri()
    plugin = lab.plugin()
    seen = []
    plugin.replies["PostStartContainer"] = lambda about: seen.append(about.container.id) or b""
    lab.run("p")
    (id_,) = until(lambda: list(seen))
    cpus = m.LinuxContainerUpdate(resources=m.LinuxResources(cpu=m.LinuxCPU(cpus="0")))
    update = m.UpdateContainersRequest(
        update=[
            m.ContainerUpdate(container_id=id_, linux=cpus),
            m.ContainerUpdate(container_id="none", linux=cpus),
            m.ContainerUpdate(container_id="nothing", ignore_failure=True),
        ]
    )
    answer = m.UpdateContainersResponse.FromString(plugin.call("UpdateContainers", update))
    assert [each.container_id for each in answer.failed] == ["none"]
    until(lambda: any("changed cpuset 0" in text for text in lab.events("NRIAdjusted")))
    eviction = m.ContainerEviction(container_id=id_, reason="needed elsewhere")
    plugin.call("UpdateContainers", m.UpdateContainersRequest(evict=[eviction]))
    until(lambda: lab.phase("p") == "Failed")


@pytest.mark.parametrize(
    ("name", "index", "says"),
    [
        ("a b", "10", "invalid plugin name"),
        ("", "10", "invalid plugin name"),
        ("a", "1", "must be 2 digits"),
        ("a", "x1", "must be 2 digits"),
    ],
)
def test_a_plugin_with_a_wrong_name_is_refused(make, name, index, says):
    lab = make()
    with pytest.raises(CallError, match=says):
        Plugin(lab.path, name, index)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", FRAME.pack(2, 1 << 31), FRAME.pack(2, 12) + b"\xff" * 12]
)
def test_garbage_ends_one_connection_alone(make, data):
    lab = make()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(lab.path))
        stranger.settimeout(5)
        stranger.sendall(data)
        with suppress(ConnectionResetError):  # where something of it was not read
            assert stranger.recv(100) == b""
    lab.plugin()


def test_a_large_message_arrives_in_pieces_that_the_other_end_can_read():
    left, right = socket.socketpair()
    got = []
    server = Trunk(
        right, {"s/m": lambda data: got.append(data) or data[:5]}, calls_on=2, serves_on=1
    )
    client = Trunk(left, calls_on=1, serves_on=2)
    server.start()
    client.start()
    assert client.call("s", "m", b"x" * 100_000, 5) == b"xxxxx"
    assert len(got[0]) == 100_000
    with pytest.raises(CallError, match="has no other"):
        client.call("s", "other", b"", 5)
    with pytest.raises(TrunkError, match="the maximum is 4194304"):
        client.call("s", "m", b"x" * 5_000_000, 5)
    server.close()
    with pytest.raises(TrunkError):
        client.call("s", "m", b"", 5)
    client.close()


def test_calls_without_end_end_the_connection():
    left, right = socket.socketpair()
    go_on, served = threading.Event(), []
    handlers = {"s/m": lambda data: served.append(data) or (go_on.wait(60) and b"")}
    trunk = Trunk(right, handlers, calls_on=2, serves_on=1)
    trunk.start()
    asked = wire.ttrpc().Request(service="s", method="m").SerializeToString()
    with suppress(BrokenPipeError, ConnectionResetError):
        for stream in range(200):
            message = HEADER.pack(len(asked), 2 * stream + 1, REQUEST, 0) + asked
            left.sendall(FRAME.pack(1, len(message)) + message)
    assert trunk.closed.wait(60)
    assert len(served) <= MOST_SERVED
    go_on.set()
    left.close()


def test_a_plugin_that_reads_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("dralab.node.nri.trunk.SENDING", 0.05)
    left, right = socket.socketpair()
    client = Trunk(left, calls_on=1, serves_on=2)
    with pytest.raises(TrunkError):
        client.call("s", "m", b"x" * 4_000_000, 60)
    client.close()
    right.close()


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "0-99999999"])
def test_what_is_not_a_list_of_cpus_is_refused(text):
    with pytest.raises(ValueError, match="is not a list of CPUs"):
        cpus_of(text)


def test_a_pod_is_held_until_plugins_know_of_its_end():
    pod, jobs, told, woken = {"metadata": {"uid": "u"}}, [], [], []
    sandbox = SimpleNamespace(pod=wire.nri().PodSandbox(name="p"), stopped=None)
    hooks = object.__new__(NodeHooks)
    hooks._sandboxes = {"u": sandbox}
    hooks.plugins = SimpleNamespace(
        names=["a"], tell=lambda method, about: told.append((method, about.pod.name))
    )
    hooks.kubelet = SimpleNamespace(wake=woken.append)
    hooks._submit, hooks._soon = jobs.append, lambda action: action()
    assert [hooks.pod_stopped(pod) for _ in range(2)] == [False, False]
    [work] = jobs
    assert (told, woken) == ([], [])
    work()
    assert (told, woken) == ([("StopPodSandbox", "p")], [pod])
    assert hooks.pod_stopped(pod)
    assert hooks.pod_stopped({"metadata": {"uid": "other"}})
    sandbox.stopped, hooks.plugins.names = None, []
    assert hooks.pod_stopped(pod)

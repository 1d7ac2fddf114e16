"""What becomes of pods on a node, in simulated time."""

import pytest

from dralab import SimulatedCluster
from dralab.drivers.fake.gpu import FakeGpus
from dralab.node.checkpoint import CheckpointError, decode, encode
from dralab.node.containers import ProgramNotFound
from dralab.objects.conditions import condition_of
from dralab.objects.pods import is_ready
from dralab.runtime.resources import EVENTS, JOBS, LEASES, NODES, PODS, SLICES


def pod(name="p", *, command=None, inits=(), annotations=None, container=None, **spec):
    main = {"name": "main", "image": "busybox"} | ({"command": command} if command else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": [main | (container or {})], "initContainers": list(inits), **spec},
    }


def shell(script):
    return ["sh", "-c", script]


@pytest.fixture
def lab():
    return SimulatedCluster(nodes=["n1"])


def run(lab, body, seconds=0):
    lab.create(body)
    lab.wait(seconds)
    return lab.client.get(PODS, body["metadata"]["name"], "default")


def state(found, index=0, key="containerStatuses"):
    return found["status"][key][index]["state"]


def test_a_node_is_ready_and_keeps_its_lease(lab):
    node = lab.client.get(NODES, "n1")
    assert condition_of(node, "Ready")["status"] == "True"
    before = lab.client.get(LEASES, "n1", "kube-node-lease")["spec"]["renewTime"]
    lab.wait(600)
    assert lab.client.get(LEASES, "n1", "kube-node-lease")["spec"]["renewTime"] > before
    assert condition_of(lab.client.get(NODES, "n1"), "Ready")["status"] == "True"


def test_a_node_offers_what_others_add_to_its_capacity(lab):
    node = lab.client.get(NODES, "n1")
    node["status"]["capacity"]["example.com/foo"] = "3"
    lab.client.update(NODES, node, subresource="status")
    lab.wait(20)
    status = lab.client.get(NODES, "n1")["status"]
    assert status["allocatable"]["example.com/foo"] == "3"
    assert status["allocatable"]["cpu"] == node["status"]["allocatable"]["cpu"]


def test_a_node_can_be_used_where_no_controller_is():
    alone = SimulatedCluster(nodes=["n1"], without=("controllers",))
    run(alone, pod(command=shell("sleep infinity")), 5)
    assert alone.pods("default")["p"]["status"]["phase"] == "Running"


def test_a_pod_runs_and_writes_its_log(lab):
    found = run(lab, pod(command=shell("echo hello $HOSTNAME; sleep infinity")))
    assert found["status"]["phase"] == "Running"
    assert is_ready(found)
    assert lab.log("default", "p", "main") == "hello p\n"


@pytest.mark.parametrize(
    ("policy", "script", "phase"),
    [
        ("Never", "exit 0", "Succeeded"),
        ("Never", "exit 3", "Failed"),
        ("OnFailure", "exit 0", "Succeeded"),
        ("OnFailure", "exit 3", "Running"),
        ("Always", "exit 0", "Running"),
    ],
)
def test_the_restart_policy_decides_what_an_end_means(lab, policy, script, phase):
    found = run(lab, pod(command=shell(script), restartPolicy=policy), 300)
    assert found["status"]["phase"] == phase
    assert (found["status"]["containerStatuses"][0]["restartCount"] > 0) == (phase == "Running")


def test_a_container_that_keeps_failing_is_restarted_ever_more_slowly(lab):
    found = run(lab, pod(command=shell("exit 1")), 590)
    status = found["status"]["containerStatuses"][0]
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["exitCode"] == 1
    # At once, then after 10, 20, 40, 80, 160 and 300 seconds.
    assert status["restartCount"] == 6


def test_init_containers_run_one_after_the_other_and_first(lab):
    inits = [
        {"name": name, "image": "busybox", "command": shell("sleep 30")} for name in ("a", "b")
    ]
    found = run(lab, pod(command=shell("sleep infinity"), inits=inits), 25)
    assert found["status"]["phase"] == "Pending"
    assert "terminated" in state(found, 0, "initContainerStatuses")
    assert "running" in state(found, 1, "initContainerStatuses")
    assert state(found)["waiting"]["reason"] == "PodInitializing"
    lab.wait(60)
    assert is_ready(lab.client.get(PODS, "p", "default"))


def test_a_failed_init_container_fails_a_pod_that_is_not_restarted(lab):
    inits = [{"name": "a", "image": "busybox", "command": shell("exit 1")}]
    assert run(lab, pod(inits=inits, restartPolicy="Never"), 5)["status"]["phase"] == "Failed"


def test_a_sidecar_starts_first_and_does_not_keep_the_pod(lab):
    inits = [
        {
            "name": "side",
            "image": "x",
            "command": shell("sleep infinity"),
            "restartPolicy": "Always",
        }
    ]
    body = pod(command=shell("sleep 20"), inits=inits, restartPolicy="Never")
    found = run(lab, body)
    assert "running" in state(found, 0, "initContainerStatuses")
    lab.wait(60)
    assert lab.client.get(PODS, "p", "default")["status"]["phase"] == "Succeeded"


def test_probes_decide_about_readiness_and_restarts(lab):
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 5, "failureThreshold": 2}
    found = run(lab, pod(command=shell("sleep infinity"), container={"readinessProbe": probe}), 60)
    assert found["status"]["phase"] == "Running"
    assert not is_ready(found)
    body = pod("q", command=shell("sleep infinity"), container={"livenessProbe": probe})
    assert run(lab, body, 60)["status"]["containerStatuses"][0]["restartCount"] > 0


def test_readiness_gates_are_waited_for(lab):
    gates = [{"conditionType": "lab.example.com/wired"}]
    found = run(lab, pod(command=shell("sleep infinity"), readinessGates=gates))
    assert condition_of(found, "ContainersReady")["status"] == "True"
    ready = condition_of(found, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    for status in ("False", "True"):
        stored = lab.client.get(PODS, "p", "default")
        others = [c for c in stored["status"]["conditions"] if "example" not in c["type"]]
        told = {"type": "lab.example.com/wired", "status": status}
        changed = {**stored["status"], "conditions": [*others, told]}
        lab.client.update(PODS, {**stored, "status": changed}, subresource="status")
        lab.wait(1)
        assert is_ready(lab.client.get(PODS, "p", "default")) == (status == "True")


@pytest.mark.parametrize(("trap", "seconds"), [("trap '' TERM; ", 20), ("", 0)])
def test_a_deleted_pod_has_its_grace_period(lab, trap, seconds):
    body = pod(command=shell(f"{trap}sleep infinity"), terminationGracePeriodSeconds=20)
    run(lab, body)
    lab.client.delete(PODS, "p", "default")
    lab.wait(15)
    # Its containers run, and are as ready as they were.
    assert not seconds or is_ready(lab.pods("default")["p"])
    left = [each["metadata"]["name"] for each in lab.client.list(PODS, "default").items]
    assert left == (["p"] if seconds else [])
    lab.wait(10)
    assert not lab.client.list(PODS, "default").items


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({"sleep": {"seconds": 6}}, 6),
        ({"exec": {"command": ["sh", "-c", "sleep 4; sleep 3"]}}, 7),
        ({"exec": {"command": ["nginx", "-s", "quit"]}}, 0),
        ({"exec": {"command": ["sleep", "infinity"]}}, 20),
    ],
)
def test_a_container_ends_after_its_pre_stop_hook(lab, hook, seconds):
    container = {"lifecycle": {"preStop": hook}}
    command = shell("sleep infinity")
    run(lab, pod(command=command, container=container, terminationGracePeriodSeconds=20))
    lab.client.delete(PODS, "p", "default")
    if seconds:
        lab.wait(seconds - 1)
        assert lab.pods("default")
    lab.wait(2)
    assert not lab.pods("default")


def test_who_is_deleted_for_good_meanwhile_ends_at_once(lab):
    run(lab, pod(command=shell("trap '' TERM; sleep 999"), terminationGracePeriodSeconds=600))
    [life] = lab.kubelets.nodes["n1"].pods.values()
    lab.client.delete(PODS, "p", "default")
    lab.wait(5)
    assert life.mains[0].alive
    lab.client.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    lab.wait(5)
    assert not life.mains[0].alive


def test_sidecars_end_after_the_others_the_last_one_first(lab):
    def deaf(name, seconds):
        hook = {"preStop": {"sleep": {"seconds": seconds}}}
        return {"name": name, "image": "x", "command": shell("sleep infinity"), "lifecycle": hook}

    sidecars = [deaf(name, 2) | {"restartPolicy": "Always"} for name in ("first", "second")]
    body = pod(inits=sidecars, terminationGracePeriodSeconds=30)
    body["spec"]["containers"] = [deaf("main", 3)]
    run(lab, body)
    [life] = lab.kubelets.nodes["n1"].pods.values()
    lab.client.delete(PODS, "p", "default")
    alive = []
    for _ in range(8):
        lab.wait(1.01)
        alive.append("".join(each.name[0] for each in life.containers if each.alive))
    assert alive == ["fsm", "fsm", "fs", "fs", "f", "f", "", ""]


def test_events_in_the_order_of_their_names_are_in_the_order_of_time(lab):
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    for name in ("p", "q", "r"):
        container = {"readinessProbe": probe | {"initialDelaySeconds": 1}}
        run(lab, pod(name, command=shell("sleep 2; exit 1"), container=container), 3)
        events = lab.client.list(EVENTS, "default").items
        told = [
            event["reason"]
            for event in sorted(events, key=lambda each: each["metadata"]["name"])
            if event["involvedObject"]["name"] == name and event["reason"] != "Scheduled"
        ]
        assert told == ["Started", "Unhealthy", "BackOff"]


def test_failing_is_told_in_events(lab):
    command = shell("echo not today; exit 1")
    probe = {"exec": {"command": command}, "periodSeconds": 5, "failureThreshold": 2}
    run(lab, pod(command=shell("sleep infinity"), container={"readinessProbe": probe}), 60)
    run(lab, pod("q", command=shell("exit 3")), 60)
    told = {(event["reason"], event["message"]) for event in lab.client.list(EVENTS, "").items}
    assert ("Unhealthy", "Readiness probe failed: not today") in told
    uid = lab.pods("default")["q"]["metadata"]["uid"]
    why = f"Back-off restarting failed container main in pod q_default({uid})"
    assert ("BackOff", why) in told


def test_annotations_decide_how_long_a_container_runs_and_how_it_ends(lab):
    notes = {"dralab.dev/runs-for": "30", "dralab.dev/exit-code": "7", "dralab.dev/log": "hi"}
    body = pod(annotations=notes, restartPolicy="Never")
    assert run(lab, body, 10)["status"]["phase"] == "Running"
    lab.wait(30)
    found = lab.client.get(PODS, "p", "default")
    assert found["status"]["phase"] == "Failed"
    assert state(found)["terminated"]["exitCode"] == 7
    assert lab.log("default", "p", "main") == "hi\n"


def test_a_bad_annotation_is_told(lab):
    found = run(lab, pod(annotations={"dralab.dev/runs-for": "soon"}))
    waiting = state(found)["waiting"]
    assert waiting["reason"] == "CreateContainerError"
    assert '"soon" is not a number' in waiting["message"]


def test_a_container_whose_program_is_not_there_ends(lab, monkeypatch):
    def start(begun, ended):
        raise ProgramNotFound(f'exec: "{begun.argv[0]}": executable file not found in $PATH')

    monkeypatch.setattr(lab.kubelets.runtime, "start", start)
    found = run(lab, pod(command=["nope"], restartPolicy="Never"), 1)
    assert found["status"]["phase"] == "Failed"
    why = 'exec: "nope": executable file not found in $PATH'
    over = state(found)["terminated"]
    assert (over["exitCode"], over["reason"], over["message"]) == (128, "StartError", why)
    told = {(event["reason"], event["message"]) for event in lab.client.list(EVENTS, "").items}
    assert ("Failed", f"Error: {why}") in told
    again = run(lab, pod("q", command=["nope"]), 60)["status"]["containerStatuses"][0]
    assert again["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert again["lastState"]["terminated"]["reason"] == "StartError"
    assert again["restartCount"] >= 2


def test_a_pod_has_no_more_than_its_time(lab):
    found = run(lab, pod(command=shell("sleep infinity"), activeDeadlineSeconds=30), 60)
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_jobs_come_to_their_end(lab):
    template = pod()["spec"] | {"restartPolicy": "Never"}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 2, "template": {"spec": template}},
    }
    lab.create(body)
    lab.wait(60)
    assert lab.client.get(JOBS, "j", "default")["status"]["succeeded"] == 3


def test_variables_come_from_fields_and_config_maps(lab):
    lab.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "m", "namespace": "default"},
            "data": {"k": "v"},
        }
    )
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "ALL", "value": "$(NAME)-$(K)-$(WHAT)"},
    ]
    run(lab, pod(command=shell("echo $ALL on $NODE; sleep 1d"), container={"env": env}))
    assert lab.log("default", "p", "main") == "p-v-$(WHAT) on n1\n"


def test_a_driver_that_is_not_there_is_named_in_an_event():
    lab = SimulatedCluster(nodes=["n1"], drivers=[lambda node: FakeGpus(node, count=1)])
    (kubelet,) = lab.kubelets.nodes.values()
    plugin = kubelet.plugins.get("gpu.example.com")
    kubelet.plugins.deregister(plugin)
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]
            }
        },
    }
    body = pod(
        command=shell("export; sleep 1d"), resourceClaims=[{"name": "c", "resourceClaimName": "c"}]
    )
    body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c"}]}
    lab.create(claim, body)
    messages = [event["message"] for event in lab.client.list(EVENTS, "default").items]
    assert (
        "Failed to prepare dynamic resources: prepare dynamic resources: "
        "DRA driver gpu.example.com is not registered"
    ) in messages
    kubelet.plugins.register(plugin)
    lab.wait(70)
    assert "GPU_DEVICE_0='gpu-0'" in lab.log("default", "p", "main")


def test_slices_of_a_driver_that_stays_away_are_deleted_after_thirty_seconds():
    lab = SimulatedCluster(nodes=["n1"], drivers=[lambda node: FakeGpus(node, count=1)])
    (kubelet,) = lab.kubelets.nodes.values()
    lab.publisher.forget_driver(lab.drivers[0])
    plugin = kubelet.plugins.get("gpu.example.com")
    kubelet.plugins.deregister(plugin)
    lab.wait(20)
    kubelet.plugins.register(plugin)
    lab.wait(20)
    assert lab.client.list(SLICES).items
    kubelet.plugins.deregister(plugin)
    lab.wait(29)
    assert lab.client.list(SLICES).items
    lab.wait(2)
    assert not lab.client.list(SLICES).items


def test_a_checkpoint_that_somebody_changed_is_refused():
    with pytest.raises(CheckpointError, match="corrupted"):
        decode(encode([]).replace(b"DRACheckpoint", b"DRACheckpoinT"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        decode(b"{}")


@pytest.mark.parametrize(
    ("command", "state_of"),
    [
        (None, "running"),
        (["server"], "running"),
        (shell("server --port 1"), "running"),
        (shell("mkdir -p /x && cd /x && exec server; "), "running"),
        (shell("if true; then server; fi"), "running"),
        (shell("server | tee log"), "running"),
        (["sh", "start.sh"], "running"),
        (shell("bash -c server"), "running"),
        (shell("server & wait"), "running"),
        (shell("server; echo over"), "terminated"),
        (shell("mkdir -p /x"), "terminated"),
        (shell("until server; do sleep 1; done"), "terminated"),
        (["sh"], "terminated"),
    ],
)
def test_a_program_that_is_not_known_runs_on_where_it_comes_last(lab, command, state_of):
    found = run(lab, pod(command=command, restartPolicy="Never"), 30)
    assert list(state(found)) == [state_of]


def test_an_init_container_that_is_not_known_ends_so_that_the_pod_starts(lab):
    inits = [{"name": "migrate", "image": "x", "command": shell("migrate up")}]
    inits.append({"name": "beside", "image": "x", "restartPolicy": "Always"})
    found = run(lab, pod(inits=inits), 5)
    assert list(state(found)) == ["running"]
    assert [list(state(found, at, "initContainerStatuses")) for at in (0, 1)] == [
        ["terminated"],
        ["running"],
    ]


def test_a_node_has_storage_that_pods_request():
    lab = SimulatedCluster(nodes=["n1"])
    big = {"resources": {"requests": {"ephemeral-storage": "60Gi"}}}
    run(lab, pod("a", container=big))
    found = run(lab, pod("b", container=big))
    node = lab.client.get(NODES, "n1")["status"]
    assert node["capacity"]["ephemeral-storage"] == node["allocatable"]["ephemeral-storage"]
    assert "Insufficient ephemeral-storage" in condition_of(found, "PodScheduled")["message"]

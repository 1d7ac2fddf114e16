"""postStart hooks, ephemeral containers and termination messages, in simulated time."""

from types import SimpleNamespace

import pytest

from dralab import SimulatedCluster
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerExit
from dralab.node.termination import end
from dralab.node.termination_messages import with_message
from dralab.objects.pods import is_ready
from dralab.runtime.resources import EVENTS, PODS


@pytest.fixture
def lab():
    return SimulatedCluster(nodes=["n1"])


def container(name="main", script="sleep infinity", **more):
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], **more}


def pod(*containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": list(containers), **spec},
    }


def found(lab):
    return lab.client.get(PODS, "p", "default")


def states(lab, key="containerStatuses"):
    return [next(iter(each["state"])) for each in found(lab)["status"].get(key, ())]


def test_a_container_runs_once_its_post_start_hook_is_done_and_the_next_one_then(lab):
    hook = {"lifecycle": {"postStart": {"exec": {"command": ["sleep", "30"]}}}}
    lab.create(pod(container("first", **hook), container("second")))
    assert states(lab) == ["waiting", "waiting"]
    assert found(lab)["status"]["phase"] == "Pending"
    lab.wait(25)
    assert states(lab) == ["running", "running"]
    assert is_ready(found(lab))


def test_a_container_whose_post_start_hook_fails_is_stopped(lab, monkeypatch):
    def fails(_node, _each, _hook, _limit, done):
        lab.engine.soon(lambda: done(good=False))

    monkeypatch.setattr("dralab.node.pods.run_hook", fails)
    hook = {"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}}
    lab.create(pod(container(**hook), restartPolicy="Never"))
    assert found(lab)["status"]["phase"] == "Failed"
    [event] = [e for e in lab.client.list(EVENTS).items if e["reason"] == "FailedPostStartHook"]
    assert event["message"] == "PostStartHook failed"


def debug(lab, *containers):
    patch = {"spec": {"ephemeralContainers": list(containers)}}
    lab.client.patch(PODS, "p", patch, "default", subresource="ephemeralcontainers")
    lab.wait(5)


def test_an_ephemeral_container_runs_beside_the_others_and_is_not_started_again(lab):
    lab.create(pod(container()))
    debug(lab, container("look", "echo here; exit 3"), container("stay"))
    assert states(lab, "ephemeralContainerStatuses") == ["terminated", "running"]
    assert lab.log("default", "p", "look") == "here\n"
    lab.wait(600)
    first = found(lab)["status"]["ephemeralContainerStatuses"][0]
    assert first["state"]["terminated"]["exitCode"] == 3
    assert (first["restartCount"], first["ready"]) == (0, False)
    assert is_ready(found(lab))


def test_a_pod_ends_with_its_containers_whatever_an_ephemeral_one_does(lab):
    lab.create(pod(container(script="sleep 60"), restartPolicy="Never"))
    debug(lab, container("stay"))
    lab.wait(100)
    assert found(lab)["status"]["phase"] == "Succeeded"
    assert states(lab, "ephemeralContainerStatuses") == ["terminated"]


def ended(policy, code, lines, *, whole=True):
    run = RunningContainer({"name": "c", "terminationMessagePolicy": policy})
    for line in lines:
        run.log.write(0, line, whole=whole or line != lines[-1])
    return with_message(ContainerExit(code), run).message


@pytest.mark.parametrize(
    ("policy", "code", "message"),
    [("FallbackToLogsOnError", 1, "a\nb\n"), ("FallbackToLogsOnError", 0, ""), ("File", 1, "")],
)
def test_the_log_is_the_message_of_a_failed_container_that_wants_it(policy, code, message):
    assert ended(policy, code, ["a", "b"]) == message


def test_a_message_from_the_log_is_its_end():
    lines = [str(number) for number in range(100)]
    assert ended("FallbackToLogsOnError", 1, lines).split() == lines[20:]
    assert ended("FallbackToLogsOnError", 1, ["x" * 3000], whole=False) == "x" * 2048


def test_the_containers_of_a_pod_share_the_room_for_messages(lab):
    long = container(script=f"echo {'x' * 2000}; exit 1")
    many = [
        long | {"name": f"c{number}", "terminationMessagePolicy": "FallbackToLogsOnError"}
        for number in range(12)
    ]
    lab.create(pod(*many, restartPolicy="Never"))
    entries = found(lab)["status"]["containerStatuses"]
    assert {len(each["state"]["terminated"]["message"]) for each in entries} == {1024}


def test_a_container_that_is_asked_again_for_the_same_end_keeps_its_hook():
    """In real time the same deadline is computed anew, and comes out a little earlier."""
    stopped = []
    node = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: 0), later=lambda *_: None, recorder=None
    )
    each = RunningContainer({"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}})
    each.container = SimpleNamespace(stop=stopped.append)
    assert end(node, {}, each, 30)
    assert not end(node, {}, each, 29.9999)
    assert stopped == []
    assert not end(node, {}, each, 3)
    assert stopped == [3]

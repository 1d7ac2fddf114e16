"""What becomes of pods second by second: phases, containers and events as the kubelet has them."""

import pytest

from dralab import SimulatedCluster
from dralab.node.simulated_runtime import SimulatedContainer
from dralab.objects.conditions import condition_of
from dralab.runtime.resources import EVENTS, PODS


def ctr(name="m", script="sleep infinity", **fields):
    return {"name": name, "image": "x", "command": ["sh", "-c", script], **fields}


def sidecar(name="s", script="sleep infinity", **fields):
    return ctr(name, script, restartPolicy="Always", **fields)


def probe(program, **fields):
    return {"exec": {"command": [program]}, **fields}


def brief(pod):
    """Return a pod's status in a line.

    A container that runs has `~` where it has not started, `+` where it is ready; `*2` are restarts.
    """
    if pod is None:
        return "gone"
    found = pod["status"]
    ready = condition_of(pod, "Ready")
    words = [found["phase"], "ready" if ready["status"] == "True" else ready["reason"]]
    for key in ("initContainerStatuses", "containerStatuses"):
        for entry in found.get(key, ()):
            ((kind, state),) = entry["state"].items()
            word = "+" if entry["ready"] else "" if entry["started"] else "~"
            if kind == "waiting":
                word = state["reason"]
            elif kind == "terminated":
                word = f"{state['reason']}/{state['exitCode']}"
            restarts = f"*{entry['restartCount']}" if entry["restartCount"] else ""
            words.append(f"{entry['name']}:{word}{restarts}")
    return " ".join(words)


def story(spec, seconds, *, deleted=None):
    """Return what a pod's status says whenever it changes, and events, with their seconds."""
    lab = SimulatedCluster(nodes=["n1"])
    lab.client.create(
        PODS,
        {"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 1, **spec}},
        "default",
    )
    found, last, told = [], "", {}
    for second in range(seconds + 1):
        lab.wait(1 if second else 0.01)
        if second == deleted:
            lab.client.delete(PODS, "p", "default")
            lab.wait(0.001)
        for event in sorted(
            lab.client.list(EVENTS, "default").items, key=lambda each: each["message"]
        ):
            key, count = (event["reason"], event["message"]), event.get("count", 1)
            if key[0] != "Scheduled" and told.get(key) != count:
                found.append(f"{second} {key[0]}: {key[1].partition(' in pod')[0]} x{count}")
                told[key] = count
        if (now := brief(lab.pods("default").get("p"))) != last:
            found.append(f"{second} {now}")
            last = now
    return found


STORIES = {
    "a liveness probe ends a container at its third failure": (
        {"containers": [ctr(livenessProbe=probe("false"))]},
        32,
        None,
        [
            "0 Started: Container started: m x1",
            "0 Unhealthy: Liveness probe failed:  x1",
            "0 Running ready m:+",
            "10 Unhealthy: Liveness probe failed:  x2",
            "20 Killing: Container m failed liveness probe, will be restarted x1",
            "20 Started: Container started: m x2",
            "20 Unhealthy: Liveness probe failed:  x4",
            "20 Running ready m:+*1",
            "30 Unhealthy: Liveness probe failed:  x5",
        ],
    ),
    "a readiness probe is asked after its delay, and ends nothing": (
        {
            "containers": [
                ctr(readinessProbe=probe("true", initialDelaySeconds=5)),
                ctr("n", readinessProbe=probe("false", periodSeconds=1, failureThreshold=1)),
            ]
        },
        6,
        None,
        [
            "0 Started: Container started: m x1",
            "0 Started: Container started: n x1",
            "0 Unhealthy: Readiness probe failed:  x1",
            "0 Running ContainersNotReady m: n:",
            "5 Running ContainersNotReady m:+ n:",
        ],
    ),
    "a startup probe that fails restarts its container, and no other is asked before": (
        {
            "containers": [
                ctr(
                    startupProbe=probe("false", periodSeconds=2, failureThreshold=2),
                    livenessProbe=probe("false", periodSeconds=1, failureThreshold=1),
                )
            ]
        },
        15,
        None,
        [
            "0 Started: Container started: m x1",
            "0 Unhealthy: Startup probe failed:  x1",
            "0 Running ContainersNotReady m:~",
            "2 Killing: Container m failed startup probe, will be restarted x1",
            "2 Started: Container started: m x2",
            "2 Unhealthy: Startup probe failed:  x3",
            "2 Running ContainersNotReady m:~*1",
            "4 BackOff: Back-off restarting failed container m x1",
            "4 Killing: Container m failed startup probe, will be restarted x2",
            "4 Unhealthy: Startup probe failed:  x4",
            "4 Running ContainersNotReady m:CrashLoopBackOff*1",
            "14 Started: Container started: m x3",
            "14 Unhealthy: Startup probe failed:  x5",
            "14 Running ContainersNotReady m:~*2",
        ],
    ),
    "the others are asked once the startup probe is good": (
        {
            "containers": [
                ctr(
                    startupProbe=probe("true", initialDelaySeconds=2),
                    readinessProbe=probe("true", initialDelaySeconds=3),
                    livenessProbe=probe("false", failureThreshold=2, periodSeconds=4),
                )
            ]
        },
        6,
        None,
        [
            "0 Started: Container started: m x1",
            "0 Running ContainersNotReady m:~",
            "2 Unhealthy: Liveness probe failed:  x1",
            "2 Running ContainersNotReady m:",
            "3 Running ready m:+",
            "6 Killing: Container m failed liveness probe, will be restarted x1",
            "6 Started: Container started: m x2",
            "6 Unhealthy: Liveness probe failed:  x2",
            "6 Running ContainersNotReady m:~*1",
        ],
    ),
    "a back-off doubles": (
        {"restartPolicy": "OnFailure", "containers": [ctr(script="sleep 2; exit 3")]},
        40,
        None,
        [
            "0 Started: Container started: m x1",
            "0 Running ready m:+",
            "2 Started: Container started: m x2",
            "2 Running ready m:+*1",
            "4 BackOff: Back-off restarting failed container m x1",
            "4 Running ContainersNotReady m:CrashLoopBackOff*1",
            "14 Started: Container started: m x3",
            "14 Running ready m:+*2",
            "16 BackOff: Back-off restarting failed container m x2",
            "16 Running ContainersNotReady m:CrashLoopBackOff*2",
            "36 Started: Container started: m x4",
            "36 Running ready m:+*3",
            "38 BackOff: Back-off restarting failed container m x3",
            "38 Running ContainersNotReady m:CrashLoopBackOff*3",
        ],
    ),
    "a pod is over with its last container": (
        {
            "restartPolicy": "Never",
            "containers": [ctr("a", "sleep 2"), ctr("b", "sleep 5; exit 3")],
        },
        7,
        None,
        [
            "0 Started: Container started: a x1",
            "0 Started: Container started: b x1",
            "0 Running ready a:+ b:+",
            "2 Running ContainersNotReady a:Completed/0 b:+",
            "5 Failed PodFailed a:Completed/0 b:Error/3",
        ],
    ),
    "a pod succeeds where all its containers do": (
        {"restartPolicy": "OnFailure", "containers": [ctr("a", "sleep 2"), ctr("b", "sleep 3")]},
        7,
        None,
        [
            "0 Started: Container started: a x1",
            "0 Started: Container started: b x1",
            "0 Running ready a:+ b:+",
            "2 Running ContainersNotReady a:Completed/0 b:+",
            "3 Succeeded PodCompleted a:Completed/0 b:Completed/0",
        ],
    ),
    "init containers run in their order": (
        {
            "restartPolicy": "Never",
            "initContainers": [ctr("i", "sleep 2"), ctr("j", "sleep 1")],
            "containers": [ctr("a", "sleep 2")],
        },
        7,
        None,
        [
            "0 Started: Container started: i x1",
            "0 Pending ContainersNotReady i: j:PodInitializing a:PodInitializing",
            "2 Started: Container started: j x1",
            "2 Pending ContainersNotReady i:Completed/0 j: a:PodInitializing",
            "3 Started: Container started: a x1",
            "3 Running ready i:Completed/0 j:Completed/0 a:+",
            "5 Succeeded PodCompleted i:Completed/0 j:Completed/0 a:Completed/0",
        ],
    ),
    "init containers are repeated until they are good": (
        {
            "restartPolicy": "OnFailure",
            "initContainers": [ctr("i", "sleep 2; exit 1"), ctr("j", "sleep 1")],
            "containers": [ctr("a", "sleep 2")],
        },
        15,
        None,
        [
            "0 Started: Container started: i x1",
            "0 Pending ContainersNotReady i: j:PodInitializing a:PodInitializing",
            "2 Started: Container started: i x2",
            "2 Pending ContainersNotReady i:*1 j:PodInitializing a:PodInitializing",
            "4 BackOff: Back-off restarting failed container i x1",
            "4 Pending ContainersNotReady i:CrashLoopBackOff*1 j:PodInitializing a:PodInitializing",
            "14 Started: Container started: i x3",
            "14 Pending ContainersNotReady i:*2 j:PodInitializing a:PodInitializing",
        ],
    ),
    "a pod fails with an init container that is not repeated": (
        {
            "restartPolicy": "Never",
            "initContainers": [sidecar(), ctr("i", "sleep 2; exit 4"), ctr("j", "sleep 1")],
            "containers": [ctr("a", "sleep 2")],
        },
        5,
        None,
        [
            "0 Started: Container started: i x1",
            "0 Started: Container started: s x1",
            "0 Pending ContainersNotReady s:+ i: j:PodInitializing a:PodInitializing",
            "2 Killing: Stopping container s x1",
            "2 Failed PodFailed s:Error/143 i:Error/4 j:PodInitializing a:PodInitializing",
        ],
    ),
    "what follows a sidecar waits for its startup probe": (
        {
            "restartPolicy": "Never",
            "initContainers": [
                sidecar(startupProbe=probe("true", initialDelaySeconds=2)),
                ctr("i", "sleep 1"),
            ],
            "containers": [ctr("a", "sleep 2")],
        },
        7,
        None,
        [
            "0 Started: Container started: s x1",
            "0 Pending ContainersNotReady s:~ i:PodInitializing a:PodInitializing",
            "2 Started: Container started: i x1",
            "2 Pending ContainersNotReady s:+ i: a:PodInitializing",
            "3 Started: Container started: a x1",
            "3 Running ready s:+ i:Completed/0 a:+",
            "5 Killing: Stopping container s x1",
            "5 Succeeded PodCompleted s:Error/143 i:Completed/0 a:Completed/0",
        ],
    ),
    "a sidecar that ends is started again, and holds nothing up": (
        {
            "initContainers": [
                sidecar(script="sleep 2; exit 2", startupProbe=probe("true")),
                ctr("i", "sleep 1"),
            ],
            "containers": [ctr("a", "sleep 6")],
        },
        15,
        None,
        [
            "0 Started: Container started: i x1",
            "0 Started: Container started: s x1",
            "0 Pending ContainersNotReady s:+ i: a:PodInitializing",
            "1 Started: Container started: a x1",
            "1 Running ready s:+ i:Completed/0 a:+",
            "2 Started: Container started: s x2",
            "2 Running ready s:+*1 i:Completed/0 a:+",
            "4 BackOff: Back-off restarting failed container s x1",
            "4 Running ready s:CrashLoopBackOff*1 i:Completed/0 a:+",
            "7 Started: Container started: a x2",
            "7 Running ready s:CrashLoopBackOff*1 i:Completed/0 a:+*1",
            "13 BackOff: Back-off restarting failed container a x1",
            "13 Running ContainersNotReady s:CrashLoopBackOff*1 i:Completed/0 a:CrashLoopBackOff*1",
            "14 Started: Container started: s x3",
            "14 Running ContainersNotReady s:+*2 i:Completed/0 a:CrashLoopBackOff*1",
        ],
    ),
    "a pod ends at its deadline": (
        {"activeDeadlineSeconds": 5, "initContainers": [sidecar()], "containers": [ctr("a")]},
        7,
        None,
        [
            "0 Started: Container started: a x1",
            "0 Started: Container started: s x1",
            "0 Running ready s:+ a:+",
            "5 Killing: Stopping container a x1",
            "5 Killing: Stopping container s x1",
            "5 Failed PodFailed s:Error/143 a:Error/143",
        ],
    ),
    "a pod is pending until each container has run": (
        {
            "containers": [
                ctr("a"),
                ctr(
                    "b",
                    env=[
                        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
                    ],
                ),
            ]
        },
        12,
        None,
        [
            "0 Started: Container started: a x1",
            '0 Failed: Error: configmaps "m" not found x1',
            "0 Pending ContainersNotReady a:+ b:CreateContainerConfigError",
        ],
    ),
    "sidecars end last": (
        {
            "initContainers": [sidecar()],
            "containers": [ctr("a", "trap '' TERM; sleep infinity"), ctr("b")],
        },
        6,
        2,
        [
            "0 Started: Container started: a x1",
            "0 Started: Container started: b x1",
            "0 Started: Container started: s x1",
            "0 Running ready s:+ a:+ b:+",
            "2 Killing: Stopping container a x1",
            "2 Killing: Stopping container b x1",
            "2 Running ContainersNotReady s:+ a:+ b:Error/143",
            "3 Killing: Stopping container s x1",
            "3 gone",
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_pod_goes_through_what_the_kubelet_has_it_go_through(name):
    spec, seconds, deleted, expected = STORIES[name]
    assert story(spec, seconds, deleted=deleted) == expected


@pytest.mark.parametrize("name", [name for name in STORIES if "probe" in name])
def test_probes_that_take_real_time_say_the_same(name, monkeypatch):
    monkeypatch.setattr(SimulatedContainer, "real", True, raising=False)
    spec, seconds, deleted, expected = STORIES[name]
    assert sorted(story(spec, seconds, deleted=deleted)) == sorted(expected)

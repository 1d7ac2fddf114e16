"""What is told of containers and pods: whole entries of statuses, back-offs, logs, checkpoints."""

import pytest

from dralab.contracts.plugin import ClaimRef, PreparedDevice
from dralab.kernel.clock import SECOND
from dralab.node.checkpoint import CheckpointError, NodeFileCheckpoint, decode, encode
from dralab.node.claims import ClaimInfo
from dralab.node.container_runs import ProbeRecord, RunningContainer
from dralab.node.containers import ContainerExit
from dralab.node.logs import MOST_CHARACTERS, ContainerLog, shown
from dralab.node.statuses import PodEnd, conditions

SPEC = {"name": "m", "image": "i"}
STARTED, OVER = "1970-01-01T00:00:01Z", "1970-01-01T00:00:04Z"


def running(*, init=False, **fields):
    """Return a container that has run since second 1."""
    found = RunningContainer({**SPEC, **fields}, init=init)
    found.container, found.number, found.started = object(), 1, SECOND
    return found


def ended(exit, **fields):
    found = running(**fields)
    found.ended(exit, 4 * SECOND)
    return found


def entry(state, *, ready=False, restarts=0, started=False, last=None, run=1):
    return {
        "name": "m",
        "image": "i",
        "imageID": "r://i" if run else "",
        "state": state,
        "lastState": last or {},
        "ready": ready,
        "restartCount": restarts,
        "started": started,
    } | ({"containerID": f"r://u/m/{run}", "resources": {}} if run else {})


def over(code, reason, *, run=1, **fields):
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": STARTED,
            "finishedAt": OVER,
            **({"containerID": f"r://u/m/{run}"} if run else {}),
            **fields,
        }
    }


def test_the_status_of_a_container_that_never_ran():
    found = RunningContainer(SPEC)
    waiting = {"reason": "ContainerCreating"}
    assert found.status("r", "u") == entry({"waiting": waiting}, run=0)
    found.waiting, found.message = "CreateContainerError", "why"
    waiting = {"reason": "CreateContainerError", "message": "why"}
    assert found.status("r", "u") == entry({"waiting": waiting}, run=0)


def test_the_status_of_a_container_that_runs():
    found = running()
    state = {"running": {"startedAt": STARTED}}
    assert found.status("r", "u") == entry(state, ready=True, started=True)
    found.probes["readinessProbe"] = ProbeRecord({}, 0)
    assert found.status("r", "u") == entry(state, started=True)
    found.probes["startupProbe"] = ProbeRecord({}, 0)
    found.probes["readinessProbe"].good = True
    assert found.status("r", "u") == entry(state)
    found.probes["startupProbe"].good = True
    assert found.status("r", "u") == entry(state, ready=True, started=True)


@pytest.mark.parametrize(
    ("exit", "state"),
    [
        (ContainerExit(0), over(0, "Completed")),
        (ContainerExit(3), over(3, "Error")),
        (ContainerExit(0, "OOMKilled"), over(0, "OOMKilled")),
        (ContainerExit(1, "Error", "why"), over(1, "Error", message="why")),
    ],
)
def test_the_status_of_a_container_that_ended(exit, state):
    assert ended(exit).status("r", "u") == entry(state)
    init = ended(exit, init=True)
    assert init.status("r", "u") == entry(state, ready=exit.code == 0)
    assert not ended(exit, init=True, restartPolicy="Always").ready


def test_a_container_that_waits_for_its_restart_tells_of_its_last_run():
    found = ended(ContainerExit(3))
    found.waiting, found.message = "CrashLoopBackOff", "why"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "why"}}
    assert found.status("r", "u") == entry(waiting, last=over(3, "Error"))
    found.again()
    found.waiting, found.message = "ContainerCreating", ""
    assert found.status("r", "u") == entry(
        {"waiting": {"reason": "ContainerCreating"}}, restarts=1, last=over(3, "Error", run=0)
    )


def test_an_init_container_is_ready_once_it_is_good():
    assert not running(init=True).ready
    assert running(init=True, restartPolicy="Always").ready
    assert not RunningContainer(SPEC, init=True).ready
    assert not RunningContainer({**SPEC, "restartPolicy": "Always"}).sidecar


def test_a_back_off_doubles_and_begins_anew_after_ten_minutes():
    found = RunningContainer(SPEC)

    def runs(seconds):
        """Run for a while; return the back-off after it."""
        found.container, found.started = object(), found.finished
        found.ended(ContainerExit(1), found.started + seconds * SECOND)
        waits = found.due(found.finished)
        assert found.due(found.finished + SECOND) == max(0, waits - SECOND)
        found.again()
        return waits // SECOND

    assert [runs(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert [runs(600), runs(601), runs(1)] == [300, 0, 10]


def test_a_kubelet_goes_on_from_what_an_earlier_one_wrote():
    def remembered(status):
        found = RunningContainer(SPEC)
        found.remember(status)
        return found

    fresh = remembered({"restartCount": 5})
    assert (fresh.number, fresh.restarts, fresh.exit) == (0, 0, None)
    ran = remembered({"containerID": "r://u/m/3", "restartCount": 2, "state": {"running": {}}})
    assert (ran.number, ran.restarts, ran.exit) == (3, 3, None)
    status = entry(over(3, "Error", run=2), restarts=1, run=2)
    done = remembered(status)
    assert done.status("r", "u") == status
    assert done.log.ended
    bare = remembered({"containerID": "r://u/m/1", "state": over(3, "", run=0)})
    assert bare.status("r", "u") == entry(over(3, "Error"))


@pytest.mark.parametrize(
    ("spec", "answers", "good"),
    [
        ({}, "+", "+"),
        ({}, "---+", "---+"),
        ({"successThreshold": 2}, "+-++", "---+"),
        ({}, "+--+---", "++++++-"),
        ({"failureThreshold": 1}, "+-+", "+-+"),
    ],
)
def test_a_probe_is_good_after_as_many_answers_as_it_says(spec, answers, good):
    record = ProbeRecord(spec, 0)
    found = ""
    for answer in answers:
        record.take_answer(success=answer == "+", now=0)
        found += "+" if record.good else "-"
    assert found == good


def test_a_probe_is_asked_every_ten_seconds_or_as_it_says():
    for spec, seconds in (({}, 10), ({"periodSeconds": 3}, 3), ({"periodSeconds": 0}, 1)):
        record = ProbeRecord(spec, 0)
        record.take_answer(success=True, now=5 * SECOND)
        assert record.next == (5 + seconds) * SECOND


# --- pods -------------------------------------------------------------------------------------------


def told(pod=None, inits=(), mains=(), *, over=None, initialized=True, started=True):
    found = conditions(
        {"spec": {}, **(pod or {})}, inits, mains, over=over, initialized=initialized,
        started=started,
    )  # fmt: skip
    words = ("type", "status", "reason", "message")
    return [" ".join(each[word] for word in words if word in each) for each in found]


NOT_READY = "ContainersNotReady containers with unready status: [m]"
NOT_INITIALIZED = "ContainersNotInitialized containers with incomplete status: "


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"mains": [running()]}, ["True", "True", "True", "True"]),
        (
            {"mains": [RunningContainer(SPEC), running()]},
            ["True", "True", f"False {NOT_READY}", f"False {NOT_READY}"],
        ),
        (
            {
                "inits": [
                    ended(ContainerExit(0), init=True, name="a"),
                    running(init=True, name="b"),
                    running(init=True, name="c", restartPolicy="Always"),
                    RunningContainer({**SPEC, "name": "d"}, init=True),
                ],
                "mains": [RunningContainer(SPEC)],
                "initialized": False,
            },
            ["True", f"False {NOT_INITIALIZED}[b d]", f"False {NOT_READY}", f"False {NOT_READY}"],
        ),
        (
            {"mains": [ended(ContainerExit(0))], "over": PodEnd("Succeeded")},
            ["False", "True PodCompleted", "False PodCompleted", "False PodCompleted"],
        ),
        (
            {"mains": [ended(ContainerExit(1))], "over": PodEnd("Failed")},
            ["False", "True", "False PodFailed", "False PodFailed"],
        ),
        (
            {
                "inits": [ended(ContainerExit(1), init=True)],
                "over": PodEnd("Failed"),
                "initialized": False,
            },
            ["False", f"False {NOT_INITIALIZED}[m]", "False PodFailed", "False PodFailed"],
        ),
        ({"mains": [running()], "started": False}, ["False", "True", "True", "True"]),
    ],
)
def test_the_conditions_of_a_pod(given, expected):
    names = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    assert told(**given) == [f"{n} {e}" for n, e in zip(names, expected, strict=True)]


def test_what_readiness_gates_say():
    gates = {"readinessGates": [{"conditionType": each} for each in ("a", "b", "c")]}
    listed = [{"type": "b", "status": "False"}, {"type": "c", "status": "True"}]
    pod = {"spec": gates, "status": {"conditions": listed}}
    assert told(pod, mains=[running()])[2:] == [
        "Ready False ReadinessGatesNotReady corresponding condition of pod readiness gate "
        '"a" does not exist., the status of pod readiness gate "b" is not "True", but False',
        "ContainersReady True",
    ]


# --- logs and checkpoints ---------------------------------------------------------------------------


def test_a_log_keeps_so_many_lines_and_characters():
    def kept(log):
        return [line for _, line in log.read()[0]]

    log = ContainerLog(most=3)
    for line in "abcd":
        log.write(0, line)
    assert kept(log) == ["b", "c", "d"]
    assert [log.read(after)[0] for after in (3, 4, 9)] == [[(0, "d")], [], []]
    log = ContainerLog()
    half = "x" * (MOST_CHARACTERS // 2)
    log.write(0, half)
    log.write(0, half)
    assert kept(log) == [half, half]
    log.write(0, "y")
    assert kept(log) == [half, "y"]
    log.write(0, half[1:])
    assert kept(log) == [half, "y", half[1:]]


def test_a_log_calls_its_listeners_until_they_forget_it():
    log, calls = ContainerLog(), []
    forget = log.listen(lambda: calls.append(log.ended))
    log.write(0, "a")
    log.end()
    forget()
    forget()
    log.write(0, "b")
    assert calls == [False, True]
    assert shown((SECOND, "a"), timestamps=False) == b"a\n"
    assert shown((SECOND, "a"), timestamps=True) == b"1970-01-01T00:00:01.000000Z a\n"


HELD = [
    ClaimInfo(
        ClaimRef("ns", "c", "uid-1"),
        ("pod-1", "pod-2"),
        {
            "a.example.com": (
                PreparedDevice(
                    requests=("r",), pool="p", device="d", cdi_ids=("v/c=d",), share_id="s"
                ),
                PreparedDevice(requests=(), pool="p", device="e", cdi_ids=(), share_id=""),
            ),
            "b.example.com": (),
        },
    ),
    ClaimInfo(ClaimRef("ns", "d", "uid-2"), (), {}),
]


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    path = tmp_path / "of" / "a" / "driver"
    kept = NodeFileCheckpoint(path)
    assert kept.load() == ()
    kept.save(HELD)
    assert kept.load() == decode(encode(HELD)) == HELD
    written = path.stat().st_mtime_ns, path.stat().st_ino
    kept.save(HELD)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written
    kept.save(HELD[:1])
    assert NodeFileCheckpoint(path).load() == HELD[:1]
    assert [each.name for each in path.parent.iterdir()] == ["driver"]


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"Data":1,"Checksum":1}'])
def test_a_file_that_is_not_a_checkpoint_is_refused(raw):
    with pytest.raises(CheckpointError, match="cannot be read"):
        decode(raw)

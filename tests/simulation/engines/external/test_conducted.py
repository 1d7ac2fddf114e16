"""Schedulers under the virtual clock: what they wait for takes no real time, and none is late."""

import gc

import pytest
from tests.simulation.engines.external.cases import WATCHING, ScenarioWriter, run, tasks

from clocked import needs_clock
from dralab.kernel.clock import SECOND, ManualClock
from dralab.scenarios.errors import DecisionError, InputError
from dralab.simulation.engines.external import options

pytestmark = needs_clock

# Takes a minute for each decision, and looks for pods each ten minutes.
SLOW = """
import json, os, time, urllib.request
server = "http://" + os.environ["SERVER"]
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))
while True:
    nodes = ask("/api/v1/nodes")["items"]
    for pod in ask("/api/v1/pods?fieldSelector=spec.nodeName=")["items"]:
        time.sleep(60)
        name = pod["metadata"]["name"]
        target = {"kind": "Node", "name": nodes[int(name[2:]) % len(nodes)]["metadata"]["name"]}
        ask(f"/api/v1/namespaces/default/pods/{name}/binding", {"metadata": {"name": name}, "target": target})
    time.sleep(600)
"""


@pytest.fixture
def scenario(tmp_path):
    return ScenarioWriter(tmp_path, clock="virtual")


def test_the_time_that_a_scheduler_takes_is_simulated(scenario):
    result, _ = run(
        scenario("{name: p, count: 4, duration: 100s, cpu: 1}", program=SLOW, warm_up=60,
                 start="'2026-01-01T00:00:00Z'")
    )  # fmt: skip
    # It looked a minute before the run began; its next look is at 540 s.
    assert tasks(result) == {
        f"p-{n}": ("Succeeded", 600 + 60 * n, 600 + 60 * n, 700 + 60 * n, 0) for n in range(4)
    }
    assert result.notes[0] == "late binds: 0"
    assert result.notes[1].startswith("virtual clock: it stands still until all programs")
    assert "the clock showed 2026-01-01T00:00:00Z when the run began" in result.notes


@pytest.mark.parametrize("frozen", [False, True])
def test_python_collects_garbage_as_before_when_a_run_is_over(scenario, frozen):
    gc.freeze() if frozen else gc.unfreeze()
    before = gc.get_threshold()
    run(scenario("{name: p, count: 1, duration: 1s, cpu: 1}", program=WATCHING))
    assert gc.get_threshold() == before
    assert (gc.get_freeze_count() > 0) == frozen


# Sets a time-out that the kernel counts by itself, and names another machine.
OUTSIDE = """
import ctypes, socket
ctypes.CDLL(None).recvmmsg(-1, None, 0, 0, bytes(16))
try:
    socket.socket().connect(("192.0.2.1", 80))
except OSError:
    pass
"""


def test_the_report_says_what_the_clock_does_not_cover(scenario):
    loaded = scenario("{name: p, duration: 1s, cpu: 1}", program=OUTSIDE + WATCHING, rest=5)
    result, _ = run(loaded)
    said = [note for note in result.notes if note.startswith("clock: ")]
    assert len(said) == 2
    assert said[0].endswith("uses recvmmsg with a timeout, which runs in real time")
    assert said[1].endswith("was refused a connection to 192.0.2.1:80")


# Waits with epoll, has a timer of its own, and binds whatever a watch tells it of.
WITH_EPOLL = """
import asyncio, json, os
host, port = os.environ["SERVER"].split(":")
writers = []
async def ask(method, path, body=b""):
    reader, writer = await asyncio.open_connection(host, port)
    head = f"{method} {path} HTTP/1.1\\r\\nhost: {host}:{port}\\r\\ncontent-type: application/json\\r\\n"
    writers.append(writer)
    writer.write(f"{head}content-length: {len(body)}\\r\\n\\r\\n".encode() + body)
    return reader
async def tick():
    while True:
        await asyncio.sleep(7)
async def main():
    ticking = asyncio.ensure_future(tick())
    reader = await ask("GET", "/api/v1/pods?watch=true")
    while line := await reader.readline():
        if line.startswith(b"{") and (event := json.loads(line))["type"] == "ADDED":
            name = event["object"]["metadata"]["name"]
            target = {"kind": "Node", "name": "node-" + name[2:]}
            body = json.dumps({"metadata": {"name": name}, "target": target}).encode()
            await ask("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)
asyncio.run(main())
"""


def test_what_a_watch_tells_is_acted_on_at_that_instant_not_at_the_next_timer(scenario):
    result, _ = run(
        scenario("{name: p, count: 4, at: 1s, every: 3s, duration: 5s, cpu: 1}", program=WITH_EPOLL)
    )  # fmt: skip
    assert [task.bound / 1e9 for task in result.tasks] == [1, 4, 7, 10]


def test_a_run_ends_when_its_programs_have_done_nothing_for_long(scenario):
    result, _ = run(
        scenario("{name: p, count: 2, duration: 100s, cpu: 2}", nodes="{name: n, cpu: 1}",
                 program=WATCHING, rest=30)
    )  # fmt: skip
    assert result.complete
    assert {state for state, *_ in tasks(result).values()} == {"Pending"}
    assert "2 pods never bound: default/p-0, default/p-1" in result.notes


def test_a_program_that_never_pauses_ends_the_run_with_its_name(scenario):
    loaded = scenario("{name: p, cpu: 1}", program="while True: pass", instant_timeout=0.1)
    with pytest.raises(DecisionError, match=r"python.* did not pause for 0\.1 s"):
        run(loaded)


def test_a_scheduler_that_does_not_look_at_pods_in_time_is_told(scenario):
    loaded = scenario("{name: p, cpu: 1}", program="import time; time.sleep(3600)", warm_up=5)
    with pytest.raises(
        DecisionError, match=r"did not ask for pods in 5 s of its clock \(warm_up\)"
    ):
        run(loaded)


def test_a_run_in_real_time_says_so_and_why(scenario):
    said = []
    loaded = scenario("{name: p, duration: 1s, cpu: 1}", program=WATCHING, clock="real", rest=5)
    result, _ = run(loaded, say=said.append)
    assert "no virtual clock (external.clock is real): silence counts as an answer" in result.notes
    warning = "warning: external.rest has no effect: the clock is real (external.clock is real)"
    assert warning in said


def test_the_clock_shows_the_wall_s_second_unless_a_start_is_given(scenario, monkeypatch):
    # Programs compare it with dates of their own: of certificates, or of their build.
    monkeypatch.setattr(options, "WallClock", lambda: ManualClock(1_800_000_000_123_456_789))
    assert options.time_of(scenario("")).start == 1_800_000_000 * SECOND
    given = scenario("", start="'2026-01-01T00:00:00Z'")
    assert options.time_of(given).start == 1_767_225_600 * SECOND


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"clock": "atomic"}, r"clock: 'atomic' is not one of virtual, real"),
        ({"start": "noon"}, r"start: 'noon' is not a time such as"),
        ({"rest": "-1"}, r"rest: must be a number, at least 0, and is -1"),
        ({"settle": "1"}, r"settle: is unknown; known: .*quiet_period"),
    ],
)
def test_wrong_options_are_refused_by_name(scenario, wrong, told):
    with pytest.raises(InputError, match=rf"external\.{told}"):
        scenario("", **wrong)


# Looks at its queue every second, as kube-scheduler does; `act` is what else it does then.
TICKING = """
import threading, time, urllib.request, os
def tick():
    began = time.monotonic()
    while True:
        act(time.monotonic() - began)
        time.sleep(1)
threading.Thread(target=tick, daemon=True).start()
"""
NOTHING = "def act(seconds): pass\n"
ASKING = """
asked = []
def act(seconds):
    if seconds < 507 or asked: return
    asked.append(True)
    urllib.request.urlopen("http://" + os.environ["SERVER"] + "/api/v1/nodes").read()
"""


def jumps_of(result):
    (note,) = [note for note in result.notes if "jumps of the clock" in note]
    return int(note.split(" jumps")[0].split()[-1])


@pytest.mark.thorough
@pytest.mark.parametrize("act", [NOTHING, ASKING], ids=["idle", "acting"])
def test_timers_are_skipped_while_nothing_waits_unless_one_matters(scenario, act):
    pods = "{name: p, count: 3, at: 10s, every: 400s, duration: 300s, cpu: 1}"
    program = act + TICKING + WATCHING
    every, _ = run(scenario(pods, program=program))
    some, _ = run(scenario(pods, program=program, skip_idle_timers="true"))
    assert tasks(some) == tasks(every)
    repeated = [note for note in some.notes if "repeated with all timers" in note]
    if act == NOTHING:
        assert jumps_of(some) * 4 < jumps_of(every)
        assert not repeated
    else:
        assert jumps_of(some) == jumps_of(every)
        assert len(repeated) == 1


def test_timers_of_controllers_are_not_skipped(scenario):
    loaded = scenario("{name: p}", program=WATCHING, skip_idle_timers="true", controllers="all")
    with pytest.raises(InputError, match="skip_idle_timers: must be false with controllers"):
        run(loaded)

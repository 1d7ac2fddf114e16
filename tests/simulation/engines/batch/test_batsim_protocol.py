"""Both ends of Batsim's protocol: against each other, against written dialogues, and pybatsim."""

import json
import shutil
import socket
import subprocess
import threading

import orjson
import pytest
from tests.simulation.engines.batch.finished import run_batsim

from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import outputs, protocol, remote
from dralab.simulation.engines.batch import run as runs
from dralab.simulation.engines.batch.decision_process import DecisionProcess
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.messages import BatchEvents
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads import batsim
from waiting import PATIENCE

MEDIUM = ("batsim", "evalys", "examples", "batsim_outputs", "medium_late", "medium_late.json")


class Overheard:
    """A scheduler on the other side of the protocol, without a socket; keeps what was said."""

    def __init__(self, name):
        self.side = DecisionProcess(SCHEDULERS[name]())
        self.reader = protocol.ReplyReader()
        self.said = []

    def _ask(self, message, now):
        reply = self.side.reply(orjson.loads(orjson.dumps(message)))
        self.said.append((message, reply))
        return self.reader.answer(orjson.loads(orjson.dumps(reply)), now)

    def begin(self, beginning):
        return self._ask(protocol.beginning(beginning), 0)

    def decide(self, news):
        self.reader.learn(news.submitted)
        return self._ask(protocol.news(news), news.now)

    def end(self, now):
        self._ask(protocol.ending(now), now)


@pytest.mark.parametrize("name", ["easy", "conservative", "fcfs", "easy-counting"])
def test_a_scheduler_behind_the_protocol_decides_as_it_does_in_process(testdata, name):
    workload = batsim.read(testdata(*MEDIUM))
    direct = BatchSimulation(plain(32), [workload], SCHEDULERS[name]())
    direct.run()
    far = BatchSimulation(plain(32), [workload], Overheard(name))
    far.run()
    assert outputs.jobs_csv(far) == outputs.jobs_csv(direct)


def test_what_is_said_keeps_the_rules_of_the_protocol(workload_file):
    path = workload_file(("a", 0, 1, 5, 5), ("b", 5, 1, 9, 2), ("c", 5, 2, 9, 2), machines=2)
    scheduler = Overheard("easy")
    BatchSimulation(plain(2), [batsim.read(path)], scheduler).run()
    first, *middle, last = [message for message, _ in scheduler.said]
    assert [e["type"] for e in first["events"]] == ["SIMULATION_BEGINS"]
    begins = first["events"][0]["data"]
    assert begins["nb_compute_resources"] == 2
    assert set(protocol.CONFIG) <= set(begins["config"])
    assert begins["profiles"]["w0"]["d5"]["delay"] == 5
    assert last["events"] == [{"timestamp": 9.0, "type": "SIMULATION_ENDS", "data": {}}]
    together = [e["type"] for e in middle[1]["events"]]
    assert together == ["JOB_COMPLETED", "JOB_SUBMITTED", "JOB_SUBMITTED", "NOTIFY"]
    for message in middle:
        times = [event["timestamp"] for event in message["events"]]
        assert times == sorted(times)
        assert message["now"] >= times[-1]
    submitted = middle[0]["events"][0]["data"]
    assert submitted["job_id"] == submitted["job"]["id"] == "w0!a"
    assert submitted["job"]["subtime"] == 0


def dialogue(*lines):
    return [json.loads(line) for line in lines]


DIALOGUES = {
    # A head that blocks, a short job that may pass, and one that may not.
    "easy": dialogue(
        '{"now": 0, "events": [{"timestamp": 0, "type": "SIMULATION_BEGINS", "data": {"nb_resources": 4, "nb_compute_resources": 4, "compute_resources": [{"id": 0, "name": "n0"}]}}]}',
        '{"now": 0, "events": []}',
        '{"now": 1, "events": [{"timestamp": 1, "type": "JOB_SUBMITTED", "data": {"job_id": "w0!1", "job": {"id": "w0!1", "res": 3, "walltime": 10, "profile": "p", "subtime": 1}}}]}',
        '{"now": 1, "events": [{"timestamp": 1, "type": "EXECUTE_JOB", "data": {"job_id": "w0!1", "alloc": "0-2"}}]}',
        '{"now": 2, "events": [{"timestamp": 2, "type": "JOB_SUBMITTED", "data": {"job_id": "w0!2", "job": {"id": "w0!2", "res": 4, "walltime": 5, "profile": "p"}}}, {"timestamp": 2, "type": "JOB_SUBMITTED", "data": {"job_id": "w0!3", "job": {"id": "w0!3", "res": 1, "walltime": 8, "profile": "p"}}}, {"timestamp": 2, "type": "JOB_SUBMITTED", "data": {"job_id": "w0!4", "job": {"id": "w0!4", "res": 1, "walltime": 99, "profile": "p"}}}, {"timestamp": 2, "type": "JOB_SUBMITTED", "data": {"job_id": "w0!5", "job": {"id": "w0!5", "res": 9, "walltime": 9, "profile": "p"}}}]}',
        '{"now": 2, "events": [{"timestamp": 2, "type": "REJECT_JOB", "data": {"job_id": "w0!5"}}, {"timestamp": 2, "type": "EXECUTE_JOB", "data": {"job_id": "w0!3", "alloc": "3"}}]}',
        '{"now": 9, "events": [{"timestamp": 9, "type": "JOB_COMPLETED", "data": {"job_id": "w0!1", "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "0-2"}}, {"timestamp": 9, "type": "JOB_COMPLETED", "data": {"job_id": "w0!3", "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "3"}}]}',
        '{"now": 9, "events": [{"timestamp": 9, "type": "EXECUTE_JOB", "data": {"job_id": "w0!2", "alloc": "0-3"}}]}',
        '{"now": 20, "events": [{"timestamp": 20, "type": "SIMULATION_ENDS", "data": {}}]}',
        '{"now": 20, "events": []}',
    ),
    # Version 1: no walltime in the job, `status` and no allocation when it ends.
    "fcfs": dialogue(
        '{"now": 0, "events": [{"timestamp": 0, "type": "SIMULATION_BEGINS", "data": {"nb_resources": 1}}]}',
        '{"now": 0, "events": []}',
        '{"now": 1, "events": [{"timestamp": 0, "type": "JOB_SUBMITTED", "data": {"job_id": "1", "job": {"res": 1}}}, {"timestamp": 1, "type": "JOB_SUBMITTED", "data": {"job_id": "2", "job": {"res": 1}}}]}',
        '{"now": 1, "events": [{"timestamp": 1, "type": "EXECUTE_JOB", "data": {"job_id": "1", "alloc": "0"}}]}',
        '{"now": 5, "events": [{"timestamp": 5, "type": "NOTIFY", "data": {"type": "no_more_static_job_to_submit"}}]}',
        '{"now": 5, "events": []}',
        '{"now": 9, "events": [{"timestamp": 9, "type": "JOB_COMPLETED", "data": {"job_id": "1", "status": "SUCCESS"}}]}',
        '{"now": 9, "events": [{"timestamp": 9, "type": "EXECUTE_JOB", "data": {"job_id": "2", "alloc": "0"}}]}',
    ),
}


@pytest.mark.parametrize("name", sorted(DIALOGUES))
def test_a_written_dialogue_is_answered_as_written(name):
    side = DecisionProcess(SCHEDULERS[name]())
    lines = DIALOGUES[name]
    for asked, expected in zip(lines[::2], lines[1::2], strict=True):
        assert side.reply(asked) == expected


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("[]", "an invalid message"),
        ('{"now": "x", "events": []}', "time"),
        ('{"now": 1, "events": [7]}', "lacks"),
        ('{"now": 1, "events": [{"type": "CALL_ME_LATER", "data": {}}]}', "lacks 'timestamp'"),
        ('{"now": 1, "events": [{"type": "DANCE", "data": {}}]}', "not an event of the protocol"),
        (
            '{"now": 1, "events": [{"type": "EXECUTE_JOB", "data": {"job_id": "w0!9", "alloc": "0"}}]}',
            "not submitted to it",
        ),
        (
            '{"now": 1, "events": [{"type": "SET_RESOURCE_STATE", "data": {"resources": "a", "state": "0"}}]}',
            "not an interval",
        ),
    ],
)
def test_a_reply_that_makes_no_sense_stops_the_run(reply, problem):
    with pytest.raises(DecisionError, match=problem):
        protocol.ReplyReader().answer(json.loads(reply), 0)


# The same two jobs on two machines in the words of each version.
BEGINNINGS = {
    1: {"nb_resources": 2},
    2: {"nb_resources": 2, "config": {}, "resources_data": [{"id": 0, "name": "a", "state": "idle"}]},
    3: {"nb_resources": 2, "nb_compute_resources": 2, "nb_storage_resources": 0,
        "allow_time_sharing": False, "compute_resources": [{"id": 0, "name": "a"}],
        "storage_resources": [], "workloads": {"w0": "w.json"}, "profiles": {"w0": {}}},
    4: {"nb_resources": 2, "nb_compute_resources": 2, "nb_storage_resources": 0,
        "allow_compute_sharing": False, "allow_storage_sharing": True, "config": {},
        "compute_resources": [{"id": 0, "name": "a", "state": "idle", "properties": {}}],
        "storage_resources": [], "workloads": {"w0": "w.json"}, "profiles": {"w0": {}}},
}  # fmt: skip
ENDINGS = {
    1: {"job_id": "w0!1", "status": "SUCCESS"},
    2: {"job_id": "w0!1", "status": "SUCCESS", "job_state": "COMPLETED_SUCCESSFULLY",
        "kill_reason": ""},
    3: {"job_id": "w0!1", "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "0-1"},
    4: {"job_id": "w0!1", "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "0-1"},
}  # fmt: skip


def message(now, *events):
    return {
        "now": now,
        "events": [{"timestamp": now, "type": kind, "data": data} for kind, data in events],
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_of_the_protocol_is_understood(version):
    side = DecisionProcess(SCHEDULERS["conservative"]())
    side.reply(message(0, ("SIMULATION_BEGINS", BEGINNINGS[version])))
    jobs = [
        ("JOB_SUBMITTED", {"job_id": f"w0!{n}", "job": {"id": f"w0!{n}", "res": 2, "walltime": 9}})
        for n in (1, 2)
    ]
    assert [e["data"]["job_id"] for e in side.reply(message(1, *jobs))["events"]] == ["w0!1"]
    over = side.reply(message(5, ("JOB_COMPLETED", ENDINGS[version])))
    assert over["events"] == [
        {"timestamp": 5.0, "type": "EXECUTE_JOB", "data": {"job_id": "w0!2", "alloc": "0-1"}}
    ]
    assert side.reply(message(9, ("SIMULATION_ENDS", {}))) == {"now": 9, "events": []}
    assert side.over


BEGUN = message(0, ("SIMULATION_BEGINS", BEGINNINGS[4]))


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([[]], "sent an invalid message"),
        ([{"now": 0}], "sent an invalid message"),
        ([{"now": "soon", "events": []}], "sent the time 'soon'"),
        ([{"now": 1e300, "events": []}], "sent the time 1e"),
        ([{"now": 0, "events": [7]}], "sent 7, which is not an event"),
        ([{"now": 0, "events": [{"type": "NOTIFY", "data": [1]}]}], "which is not an event"),
        ([{"now": 0, "events": [{"type": "NOTIFY", "timestamp": "x"}]}], "sent the time 'x'"),
        ([message(9), message(5)], "sent a time that goes backwards, from 9 to 5"),
        (
            [{"now": 5, "events": [{"timestamp": 6, "type": "REQUESTED_CALL"}]}],
            "sent a REQUESTED_CALL of 6 s at 5 s",
        ),
        ([message(1, ("REQUESTED_CALL", {}))], "sent events before SIMULATION_BEGINS"),
        ([BEGUN, BEGUN], "began twice"),
        ([message(0, ("SIMULATION_BEGINS", {"nb_resources": "many"}))], "has 'many' machines"),
        ([BEGUN, message(1, ("JOB_SUBMITTED", {"job": {"res": 1}}))], "that is invalid"),
        ([BEGUN, message(1, ("JOB_SUBMITTED", {"job_id": "a", "job": {}}))], "asks for 0 machines"),
        ([BEGUN, message(1, ("JOB_COMPLETED", {"job_id": "a"}))], "which it never submitted"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused_with_the_reason(messages, problem):
    side = DecisionProcess(SCHEDULERS["fcfs"]())
    *before, last = messages
    for one in before:
        side.reply(one)
    with pytest.raises(DecisionError, match=problem):
        side.reply(last)


def test_an_event_that_nobody_knows_is_left_to_those_who_do():
    side = DecisionProcess(SCHEDULERS["fcfs"]())
    side.reply(BEGUN)
    assert side.reply(message(3, ("WEATHER_CHANGED", {"to": "rain"})))["events"] == []


def places(value, path=()):
    """Yield the path of every value in a JSON value."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value, path, to):
    """Return a JSON value with another one at a path; `...` leaves it out."""
    if not path:
        return to
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return copy


ODD = (
    ...,
    None,
    True,
    -1,
    1.5,
    1e308,
    "",
    "x",
    [],
    [1],
    {},
    {"a": 1},
    "3-1",
    "0-9999999999",
    10**30,
)


def test_whatever_is_wrong_in_a_message_it_is_an_error_of_the_protocol():
    lines = DIALOGUES["easy"][::2]
    tried = refused = 0
    for number, line in enumerate(lines):
        for path in places(line):
            for odd in ODD:
                if path or odd is not ...:
                    said = [*lines[:number], changed(line, path, odd), *lines[number + 1 :]]
                    side = DecisionProcess(SCHEDULERS["easy"]())
                    tried += 1
                    try:
                        for one in said:
                            side.reply(one)
                    except DecisionError:
                        refused += 1
    assert tried > 1000
    assert refused > tried / 3


def test_jobs_and_profiles_may_be_registered_while_the_simulation_runs(workload_file):
    class Registering:
        def __init__(self):
            self.reader = protocol.ReplyReader()
            self.asked = 0

        def begin(self, beginning):
            return None

        def end(self, now):
            pass

        def decide(self, news: BatchEvents):
            self.asked += 1
            self.reader.learn(news.submitted)
            events = [
                {"type": "EXECUTE_JOB", "data": {"job_id": job.key, "alloc": "0"}}
                for job in news.submitted
            ]
            if self.asked == 1:
                events += [
                    {
                        "type": "REGISTER_PROFILE",
                        "data": {
                            "workload_name": "dyn",
                            "profile_name": "q",
                            "profile": {"type": "delay", "delay": 3},
                        },
                    },
                    {
                        "type": "REGISTER_JOB",
                        "data": {
                            "job_id": "dyn!x",
                            "job": {"res": 1, "profile": "q", "walltime": 9},
                        },
                    },
                    {"type": "CALL_ME_LATER", "data": {"timestamp": 7}},
                ]
            if news.called:
                events += [
                    {"type": "EXECUTE_JOB", "data": {"job_id": "dyn!x", "alloc": "1"}},
                    {"type": "SET_JOB_METADATA", "data": {"job_id": "dyn!x", "metadata": 'a "b"'}},
                    {"type": "NOTIFY", "data": {"type": "registration_finished"}},
                ]
            return self.reader.answer({"now": news.now / 1e9, "events": events}, news.now)

    path = workload_file(("a", 0, 1, 50, 20), machines=2)
    run = BatchSimulation(
        plain(2), [batsim.read(path)], Registering(), options=BatchOptions(dynamic_jobs=True)
    )
    run.run()
    record = run.records["dyn!x"]
    assert (record.started / 1e9, record.ended / 1e9, record.state) == (
        7,
        10,
        "COMPLETED_SUCCESSFULLY",
    )
    assert outputs.jobs_csv(run).splitlines()[1].endswith('"a ""b"""')
    assert runs.warnings(run)


def test_both_ends_meet_over_a_socket(testdata):
    pytest.importorskip("zmq", reason="the extra zeromq is not installed")
    address, served = [], []
    there = threading.Event()

    def ready(found):
        address.append(found)
        there.set()

    other = threading.Thread(
        target=lambda: served.append(
            remote.serve(SCHEDULERS["easy"](), "tcp://127.0.0.1:*", ready=ready)
        )
    )
    other.start()
    assert there.wait(PATIENCE)
    path = testdata(*MEDIUM)
    far = run_batsim([path], platform=None, scheduler="easy", socket=address[0])
    other.join(10)
    near = run_batsim([path], platform=None, scheduler="easy")
    assert outputs.jobs_csv(far) == outputs.jobs_csv(near)
    assert served == [far.messages + 2]


def delays(count, spacing):
    """Return batkube's jobs of 170 s as a workload."""
    jobs = [
        {"id": str(n), "subtime": n * spacing, "res": 1, "profile": "d", "walltime": 1000}
        for n in range(count)
    ]
    return {"nb_res": 16, "jobs": jobs, "profiles": {"d": {"type": "delay", "delay": 170}}}


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("scheduler", "workload", "hosts", "expected"),
    [
        ("fillerSched", "test_delays", 2, (53.025, 8.015, 22)),
        ("easyBackfill", "test_delays", 2, (53.0, 8.0, 22)),
        ("fillerSched", "test_delays", 4, (37.005, 0.005, 22)),
        ("easyBackfill", "test_delays", 8, (37.0, 0.0, 22)),
        # These two die of a job that starts at 0: everything comes a second later.
        ("schedFcfs", "later", 2, (53.0, 8.0, 22)),
        ("schedEasySjfBackfill", "later", 4, (37.0, 0.0, 22)),
        ("fillerSched", delays(200, 0), 16, (2210.1, 979.27, 203)),
        ("fillerSched", delays(200, 10), 16, (2280.065, 57.634, 402)),
        ("easyBackfill", "medium_late", 32, (16088.51, 20.405, 1601)),
    ],
)
def test_an_unmodified_pybatsim_drives_the_machines(
    testdata, tmp_path, scheduler, workload, hosts, expected
):
    program = shutil.which("pybatsim")
    if program is None:
        pytest.skip("pybatsim is not installed (pip install --no-deps pybatsim==3.2.1)")
    path = tmp_path / "workload.json"
    if workload == "medium_late":
        path = testdata(*MEDIUM)
    elif isinstance(workload, dict):
        path.write_text(json.dumps(workload))
    else:
        given = json.loads(
            testdata("batsim", "batsim-v4", "workloads", "test_delays.json").read_text()
        )
        for job in given["jobs"]:
            job["subtime"] += workload == "later"
        path.write_text(json.dumps(given))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        other = subprocess.Popen(
            [program, scheduler, "-s", f"tcp://*:{port}", "-t", "60000"],
            stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip
        run = run_batsim(
            [path], platform=None, hosts=hosts, scheduler="easy", socket=f"tcp://localhost:{port}"
        )
        assert other.wait(PATIENCE) == 0
    found = outputs.summary(run)
    begins = 1 if workload == "later" else 0
    times = (found["makespan"] - begins, found["mean_waiting_time"])
    assert (*(round(time, 3) for time in times), run.messages + 2) == expected
    succeeded = found["nb_jobs_success"]
    assert f"success {succeeded} , complete: {succeeded}" in (tmp_path / "log").read_text()

"""Both ends of Batsim's protocol: against each other, against written dialogues, and pybatsim."""

import json
import shutil
import subprocess
import threading

import orjson
import pytest

from dralab.simulation.batch import outputs, protocol, remote, runs
from dralab.simulation.batch.decision_side import DecisionSide
from dralab.simulation.batch.engine import Options, Simulation
from dralab.simulation.batch.messages import News
from dralab.simulation.batch.schedulers import SCHEDULERS
from dralab.simulation.errors import DecisionError
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads import batsim

MEDIUM = ("batsim", "evalys", "examples", "batsim_outputs", "medium_late", "medium_late.json")


class Overheard:
    """A scheduler on the other side of the protocol, without a socket; keeps what was said."""

    def __init__(self, name):
        self.side = DecisionSide(SCHEDULERS[name]())
        self.reader = protocol.Reader()
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
    direct = Simulation(plain(32), [workload], SCHEDULERS[name]())
    direct.run()
    far = Simulation(plain(32), [workload], Overheard(name))
    far.run()
    assert outputs.jobs_csv(far) == outputs.jobs_csv(direct)


def test_what_is_said_keeps_the_rules_of_the_protocol(workload_file):
    path = workload_file(("a", 0, 1, 5, 5), ("b", 5, 1, 9, 2), ("c", 5, 2, 9, 2), machines=2)
    scheduler = Overheard("easy")
    Simulation(plain(2), [batsim.read(path)], scheduler).run()
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
    side = DecisionSide(SCHEDULERS[name]())
    lines = DIALOGUES[name]
    for asked, expected in zip(lines[::2], lines[1::2], strict=True):
        assert side.reply(asked) == expected


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("[]", "no message"),
        ('{"now": "x", "events": []}', "time"),
        ('{"now": 1, "events": [7]}', "lacks"),
        ('{"now": 1, "events": [{"type": "CALL_ME_LATER", "data": {}}]}', "lacks 'timestamp'"),
        ('{"now": 1, "events": [{"type": "DANCE", "data": {}}]}', "no event of the protocol"),
        (
            '{"now": 1, "events": [{"type": "EXECUTE_JOB", "data": {"job_id": "w0!9", "alloc": "0"}}]}',
            "never told of",
        ),
        (
            '{"now": 1, "events": [{"type": "SET_RESOURCE_STATE", "data": {"resources": "a", "state": "0"}}]}',
            "no interval",
        ),
    ],
)
def test_a_reply_that_makes_no_sense_stops_the_run(reply, problem):
    with pytest.raises(DecisionError, match=problem):
        protocol.Reader().answer(json.loads(reply), 0)


def test_jobs_and_profiles_may_be_registered_while_the_simulation_runs(workload_file):
    class Registering:
        def __init__(self):
            self.reader = protocol.Reader()
            self.asked = 0

        def begin(self, beginning):
            return None

        def end(self, now):
            pass

        def decide(self, news: News):
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
    run = Simulation(
        plain(2), [batsim.read(path)], Registering(), options=Options(dynamic_jobs=True)
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
    assert there.wait(10)
    path = testdata(*MEDIUM)
    far = runs.batsim([path], platform=None, scheduler="easy", socket=address[0])
    other.join(10)
    near = runs.batsim([path], platform=None, scheduler="easy")
    assert outputs.jobs_csv(far) == outputs.jobs_csv(near)
    assert served == [far.messages + 2]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("scheduler", "hosts", "makespan", "wait"),
    [
        ("fillerSched", 2, 53.025, 8.015),
        ("easyBackfill", 2, 53.0, 8.0),
        ("fillerSched", 4, 37.005, 0.005),
        ("easyBackfill", 8, 37.0, 0.0),
    ],
)
def test_an_unmodified_pybatsim_drives_the_machines(
    testdata, tmp_path, scheduler, hosts, makespan, wait
):
    program = shutil.which("pybatsim")
    if program is None:
        pytest.skip("pybatsim is not installed (pip install --no-deps pybatsim==3.2.1)")
    path = testdata("batsim", "batsim-v4", "workloads", "test_delays.json")
    port = 28_000 + hosts * 7 + len(scheduler)
    with (tmp_path / "log").open("w") as log:
        other = subprocess.Popen(
            [program, scheduler, "-s", f"tcp://*:{port}", "-t", "60000"],
            stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip
        run = runs.batsim(
            [path], platform=None, hosts=hosts, scheduler="easy", socket=f"tcp://localhost:{port}"
        )
        assert other.wait(30) == 0
    found = outputs.summary(run)
    assert (round(found["makespan"], 6), round(found["mean_waiting_time"], 6)) == (makespan, wait)
    assert "success 10 , complete: 10" in (tmp_path / "log").read_text()

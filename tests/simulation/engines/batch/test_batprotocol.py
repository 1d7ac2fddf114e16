"""Batsim 5's protocol: the bytes of messages, what they mean, and both ends against each other."""

import base64
import struct

import orjson
import pytest

from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch.batprotocol import decisions, ends, events, spelling
from dralab.simulation.engines.batch.batprotocol.flatbuffers import (
    FlatbufferError,
    decode,
    encode,
)
from dralab.simulation.engines.batch.batprotocol.schema import TABLES, UNIONS
from dralab.simulation.engines.batch.decision_process import DecisionProcess
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads import batsim

FORMS = pytest.mark.parametrize("form", sorted(spelling.FORMS.values()))
NO_FEATURES = dict.fromkeys(
    (field.name for field in TABLES["EDCRequestedSimulationFeatures"]), False
)
# What flatc 2.0.8 makes of MESSAGE, with the published schema.
MADE_BY_FLATC = (
    "EAAAAAAAAAAIABQACAAEAAgAAAAQAAAAAAAAAAAA+D8AAAAABAAAAGgBAADgAAAAtAAAABAAAAAAAAoAGgAMAAcA"
    "CAAKAAAAAAAABxgAAAAAAAAAAADwPwAAAAAAAAYACgAEAAYAAAAQAAAAAAAKABAACAAHAAwACgAAAAAAAAJcAAAA"
    "DAAAAAgADAAEAAgACAAAADAAAAAEAAAABAAAAAAAAAAAAPA/AAAAAAAAAEAAAAAAAAAIQAAAAAAAABBAAAAAAAIA"
    "AAAAAAAAAADwPwAAAAAAAARAAAAAAAMAAAB3IXAA4v///wAAABQQAAAAAAAAAAAA8D8AAAAANP///wAACgAYAAwA"
    "BwAIAAoAAAAAAAAEGAAAAAAAAAAAAPA/AAAAAAgADgAEAAgACAAAAEwAAAAQAAAAAAAKABIACAAHAAwACgAAAAAA"
    "AAIoAAAADAAAAAAABgAIAAQABgAAAAQAAAADAAAAAAAAAAEAAAACAAAAAwAAADAtMwAEAAAAdzAhMQAACgAMAAAA"
    "BwAIAAoAAAAAAAASFAAAABAAHAAEAAgADAAQABQAGAAQAAAASAAAADwAAAAwAAAAJAAAABgAAAAIAAAABAAGAAQA"
    "AAAAAAYACAAHAAYAAAAAAAABAAAAAAAAAAABAAAAMgAAAAEAAAB4AAAAAQAAADEAAAA="
)
MESSAGE = {
    "now": 1.5,
    "events": [
        spelling.event(
            0.0,
            "EDCHelloEvent",
            {
                "batprotocol_version": "1",
                "decision_component_name": "x",
                "decision_component_version": "2",
                "decision_component_commit": "",
                "requested_simulation_features": NO_FEATURES | {"dynamic_registration": True},
                "scheduling_constraints": {
                    "compute_sharing": False,
                    "storage_sharing": True,
                    "job_allocation_validation_strategy": "MatchJobRequestExactly",
                },
            },
        ),
        spelling.event(
            1.0,
            "ExecuteJobEvent",
            {
                "job_id": "w0!1",
                "allocation": {
                    "host_allocation": "0-3",
                    "executor_placement_type": "CustomExecutorToHostMapping",
                    "executor_placement": {"mapping": [0, 1, 2]},
                },
            },
        ),
        spelling.event(1.0, "SimulationEndsEvent"),
        spelling.event(
            1.0,
            "RegisterProfileEvent",
            {
                "profile": {
                    "id": "w!p",
                    "profile_type": "ParallelTaskProfile",
                    "profile": {
                        "computation_vector": [1.0, 2.5],
                        "communication_matrix": [1.0, 2.0, 3.0, 4.0],
                    },
                }
            },
        ),
    ],
}


def test_what_googles_own_compiler_writes_is_read():
    assert decode("Message", base64.b64decode(MADE_BY_FLATC)) == MESSAGE


@FORMS
def test_a_message_is_read_as_it_was_written(form):
    assert spelling.read(spelling.written(MESSAGE, form), form, sender="x") == MESSAGE


def test_defaults_that_are_left_out_come_back_in_both_forms():
    short = {"now": 0.0, "events": [spelling.event(0.0, "JobCompletedEvent", {"job_id": "w!1"})]}
    full = {"job_id": "w!1", "state": "COMPLETED_SUCCESSFULLY", "return_code": 0}
    for form in spelling.FORMS.values():
        (one,) = spelling.read(spelling.written(short, form), form, sender="x")["events"]
        assert one["event"] == full


def test_every_member_of_a_union_has_its_table():
    assert {name for union in UNIONS.values() for name in union} <= set(TABLES)


@pytest.mark.parametrize("length", range(0, 530, 7))
def test_bytes_that_break_off_are_refused(length):
    data = encode("Message", MESSAGE)[:length]
    with pytest.raises(FlatbufferError):
        decode("Message", data)


def test_bytes_that_were_changed_are_read_or_refused_and_nothing_else():
    data = encode("Message", MESSAGE)
    read = refused = 0
    for place in range(len(data)):
        for value in (0, 1, 0x7F, 0xFF):
            try:
                decode("Message", data[:place] + bytes([value]) + data[place + 1 :])
                read += 1
            except FlatbufferError:
                refused += 1
    assert read
    assert refused


def test_little_data_cannot_mean_much():
    count, text = 2_000, b"x" * 4_000  # so many references to one string
    offsets = (24 + 4 * count - (24 + 4 * number) for number in range(count))
    data = struct.pack("<I", 12) + struct.pack("<3H2x", 6, 8, 4) + struct.pack("<iI", 8, 4)
    data += struct.pack(f"<I{count}I", count, *offsets)
    data += struct.pack("<I", len(text)) + text + b"\0"
    with pytest.raises(FlatbufferError, match="its parts overlap"):
        decode("KillJobsEvent", data)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{", "sent invalid JSON"),
        (b"[]", r"\[\] is not a Message"),
        (b'{"now": "1"}', "Message.now must be of type float64, and is '1'"),
        (b'{"events": 3}', "Message.events is not an array"),
        (b'{"events": [3]}', "3 is not a EventAndTimestamp"),
        (
            b'{"events": [{"event_type": "RejectJobEvent", "event": {"job_id": 7}}]}',
            "RejectJobEvent.job_id must be of type string, and is 7",
        ),
    ],
)
def test_json_that_is_no_message_is_refused(data, told):
    with pytest.raises(DecisionError, match=told):
        spelling.read(data, spelling.JSON, sender="scheduler")


# --- both ends ------------------------------------------------------------------------------------

JOBS = {
    "nb_res": 4,
    "jobs": [
        {"id": 1, "subtime": 0, "res": 4, "walltime": 30, "profile": "ten"},
        {"id": 2, "subtime": 1, "res": 2, "profile": "ten", "extra_data": {"user": "jane"}},
        {"id": 3, "subtime": 1, "res": 2, "profile": "ten"},
        {"id": 4, "subtime": 2, "res": 9, "profile": "ten"},
    ],
    "profiles": {"ten": {"type": "delay", "delay": 10}},
}


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "jobs.json"
    path.write_bytes(orjson.dumps(JOBS))
    return batsim.read(path)


@pytest.fixture
def connected(monkeypatch, workload):
    """Return a run with a component, which is a function from messages to messages."""

    def run(answer, *, form=spelling.JSON, features=(), data=""):
        heard = []

        def ask(raw):
            if not heard:
                heard.append(raw)
                hello = {
                    "batprotocol_version": "1.0.0",
                    "decision_component_name": "test",
                    "decision_component_version": "0",
                    "requested_simulation_features": dict.fromkeys(features, True),
                }
                message = {"now": 0.0, "events": [spelling.event(0.0, "EDCHelloEvent", hello)]}
                return ends.WORD.pack(form) + spelling.written(message, form)
            told = spelling.read(raw, form, sender="Batsim")
            heard.append(told)
            decided = answer(told) or []
            made = [spelling.event(told["now"], kind, value) for kind, value in decided]
            return spelling.written({"now": told["now"], "events": made}, form)

        monkeypatch.setattr(ends, "asking", lambda *_: (ask, lambda: None))
        component = ends.RemoteComponent("inproc://x", data=data)
        simulation = BatchSimulation(
            plain(4), [workload], component, options=component.options(BatchOptions())
        )
        simulation.run()
        return simulation, heard

    return run


def execute(key, hosts):
    placement = {
        "host_allocation": hosts,
        "executor_placement_type": "PredefinedExecutorPlacementStrategyWrapper",
        "executor_placement": {"strategy": "SpreadOverHostsFirst"},
    }
    return "ExecuteJobEvent", {"job_id": key, "allocation": placement}


def kinds(heard):
    return [[one["event_type"] for one in told["events"]] for told in heard[1:]]


def states(simulation):
    return {
        record.job.key: (record.state, (record.ended or 0) / 1e9) for record in simulation.finished
    }


@FORMS
def test_a_built_in_scheduler_decides_the_same_behind_batsim_5(connected, workload, form):
    side = DecisionProcess(SCHEDULERS["easy"]())

    def answer(told):
        decided = ends.answer(side, told)
        return [(one["event_type"], one["event"]) for one in decided["events"]]

    simulation, heard = connected(answer, form=form)
    plainly = BatchSimulation(plain(4), [workload], SCHEDULERS["easy"]())
    plainly.run()
    assert outputs.jobs_csv(simulation) == outputs.jobs_csv(plainly)
    assert kinds(heard)[0] == ["SimulationBeginsEvent"]
    assert kinds(heard)[-1] == ["SimulationEndsEvent"]


@FORMS
def test_what_a_component_is_told(connected, form):
    def answer(told):
        for one in told["events"]:
            if one["event_type"] == "JobSubmittedEvent":
                key = one["event"]["job_id"]
                if key == "w0!1":
                    yield execute(key, "0-3")
                else:
                    yield "RejectJobEvent", {"job_id": key}

    wanted = ["forward_profiles_on_simulation_begins"]
    simulation, heard = connected(answer, form=form, features=wanted, data="greedy")
    assert heard[0] == b"\x06\0\0\0greedy"
    begins = heard[1]["events"][0]["event"]
    assert [host["id"] for host in begins["computation_hosts"]] == [0, 1, 2, 3]
    assert begins["computation_hosts"][0]["computation_speed"]
    assert begins["profiles"] == [
        {"id": "w0!ten", "profile_type": "DelayProfile", "profile": {"delay": 10}}
    ]
    told = {
        one["event"]["job_id"]: one["event"]
        for message in heard[1:]
        for one in message["events"]
        if one["event_type"] == "JobSubmittedEvent"
    }
    assert told["w0!1"]["job"] == {
        "resource_request": 4,
        "walltime": 30.0,
        "rigid": True,
        "profile_id": "w0!ten",
    }
    assert orjson.loads(told["w0!2"]["job"]["extra_data"]) == {"user": "jane"}
    assert "walltime" not in told["w0!2"]["job"]
    assert told["w0!2"]["submission_time"] == 1
    assert ["AllStaticJobsHaveBeenSubmittedEvent"] in kinds(heard) or any(
        "AllStaticJobsHaveBeenSubmittedEvent" in each for each in kinds(heard)
    )
    assert states(simulation)["w0!1"] == ("COMPLETED_SUCCESSFULLY", 10)
    assert states(simulation)["w0!3"][0] == "REJECTED"


def test_a_component_kills_a_job_and_hears_how_far_it_was(connected):
    def answer(told):
        for one in told["events"]:
            match one["event_type"]:
                case "JobSubmittedEvent":
                    key = one["event"]["job_id"]
                    if key != "w0!1":
                        yield "RejectJobEvent", {"job_id": key}
                        continue
                    yield execute(key, "0-3")
                    when = {"time": 4_000, "time_unit": "Millisecond"}
                    yield (
                        "CallMeLaterEvent",
                        {"call_me_later_id": "now", "when_type": "OneShot", "when": when},
                    )
                case "RequestedCallEvent":
                    assert one["event"]["call_me_later_id"] == "now"
                    yield "KillJobsEvent", {"job_ids": ["w0!1"]}

    simulation, heard = connected(answer)
    assert states(simulation)["w0!1"] == ("COMPLETED_KILLED", 4)
    (killed,) = (
        one["event"]
        for told in heard[1:]
        for one in told["events"]
        if one["event_type"] == "JobsKilledEvent"
    )
    assert killed["progresses"] == [
        {
            "job_id": "w0!1",
            "wrapper": {
                "kill_progress_type": "KillProgressAtomicProfile",
                "kill_progress": {"profile_id": "w0!ten", "progress": 0.4},
            },
        }
    ]


def test_periodic_calls_come_until_they_are_stopped(connected):
    calls = []

    def periodic(key, mode):
        value = {"period": 2, "offset": 1, "time_unit": "Second", **mode}
        return "CallMeLaterEvent", {
            "call_me_later_id": key, "when_type": "Periodic", "when": value
        }  # fmt: skip

    def answer(told):
        for one in told["events"]:
            match one["event_type"]:
                case "SimulationBeginsEvent":
                    finite = {"mode_type": "FinitePeriodNumber", "mode": {"nb_periods": 2}}
                    yield periodic("twice", finite)
                    yield periodic("always", {"mode_type": "Infinite", "mode": {}})
                case "JobSubmittedEvent":
                    key = one["event"]["job_id"]
                    yield (
                        execute(key, "0-3")
                        if key == "w0!1"
                        else ("RejectJobEvent", {"job_id": key})
                    )
                case "RequestedCallEvent":
                    calls.append((told["now"], one["event"]["call_me_later_id"]))
                    if told["now"] == 7:
                        yield "StopCallMeLaterEvent", {"call_me_later_id": "always"}

    connected(answer)
    assert calls == [
        (1, "twice"),
        (1, "always"),
        (3, "twice"),
        (3, "always"),
        (5, "always"),
        (7, "always"),
    ]


def test_a_component_registers_profiles_and_jobs(connected):
    def answer(told):
        for one in told["events"]:
            match one["event_type"]:
                case "SimulationBeginsEvent":
                    profile = {
                        "id": "more!short",
                        "profile_type": "DelayProfile",
                        "profile": {"delay": 3.0},
                    }
                    yield "RegisterProfileEvent", {"profile": profile}
                    job = {"resource_request": 1, "walltime": 2.0, "profile_id": "more!short"}
                    yield "RegisterJobEvent", {"job_id": "more!1", "job": job}
                    yield "FinishRegistrationEvent", {}
                case "JobSubmittedEvent":
                    key = one["event"]["job_id"]
                    yield (
                        execute(key, "0")
                        if key == "more!1"
                        else ("RejectJobEvent", {"job_id": key})
                    )

    simulation, _ = connected(answer, features=["dynamic_registration", "acknowledge_dynamic_jobs"])
    assert states(simulation)["more!1"] == ("COMPLETED_WALLTIME_REACHED", 2)


@pytest.mark.parametrize(
    ("decided", "told"),
    [
        (("CreateProbeEvent", {"probe_id": "p"}), "answered with CreateProbeEvent: probes are not"),
        (("JobSubmittedEvent", {}), "JobSubmittedEvent: it is not a decision of the protocol"),
        (("ExecuteJobEvent", {"job_id": "w0!1"}), "ExecuteJobEvent that lacks 'allocation'"),
        (
            ("CallMeLaterEvent", {"call_me_later_id": "x", "when_type": "NONE"}),
            "asked for a call with the trigger NONE",
        ),
        (
            (
                "RegisterJobEvent",
                {"job_id": "a!1", "job": {"resource_request": 1, "profile_id": "b!p"}},
            ),
            "job a!1 with a profile of another workload, b",
        ),
    ],
)
def test_a_decision_that_is_not_simulated_is_refused_by_name(connected, decided, told):
    with pytest.raises(DecisionError, match=told):
        connected(lambda _: [decided])


@pytest.mark.parametrize("feature", ends.UNSUPPORTED)
def test_a_feature_that_is_not_there_is_refused(connected, feature):
    with pytest.raises(DecisionError, match=f"requests {feature}"):
        connected(lambda _: [], features=[feature])


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "without its flags"),
        (b"\x07\0\0\0", "in the form 7, neither 1"),
        (b"\x02\0\0\0{}", "something else than EDCHelloEvent"),
        (b"\x01\0\0\0abc", "sent an invalid message"),
    ],
)
def test_a_greeting_that_is_none_is_refused(monkeypatch, raw, told):
    monkeypatch.setattr(ends, "asking", lambda *_: (lambda _: raw, lambda: None))
    with pytest.raises(DecisionError, match=told):
        ends.RemoteComponent("inproc://x")


def test_what_only_json_can_say_is_refused_in_binary():
    told = {
        "now": 0.0,
        "events": [spelling.event(0.0, "ChangeHostsPStateEvent", {"host_ids": "0"})],
    }
    assert spelling.written(told, spelling.JSON)
    with pytest.raises(DecisionError, match="has no binary form here"):
        spelling.written(told, spelling.BINARY)


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        (
            ("CALL_ME_LATER", {"timestamp": 1.0001}),
            {
                "call_me_later_id": "at-1001-ms",
                "when_type": "OneShot",
                "when": {"time": 1001, "time_unit": "Millisecond"},
            },
        ),
        (
            ("SET_RESOURCE_STATE", {"resources": "0-2", "state": "13"}),
            {"host_ids": "0-2", "pstate": 13},
        ),
        (("NOTIFY", {"type": "registration_finished"}), {}),
    ],
)
def test_decisions_of_a_built_in_scheduler(decided, expected):
    kind, data = decided
    message = {"now": 1, "events": [{"timestamp": 1, "type": kind, "data": data}]}
    (one,) = decisions.of_protocol_4(message)["events"]
    assert one["event"] == expected


def test_a_decision_without_a_form_in_batsim_5_is_refused():
    message = {"now": 1, "events": [{"timestamp": 1, "type": "SET_JOB_METADATA", "data": {}}]}
    with pytest.raises(DecisionError, match="SET_JOB_METADATA has no form in Batsim 5"):
        decisions.of_protocol_4(message)
    notice = {"timestamp": 1, "type": "NOTIFY", "data": {"type": "event_machine_available"}}
    with pytest.raises(DecisionError, match="NOTIFY event_machine_available has no form"):
        events.of_protocol_4(notice, ())

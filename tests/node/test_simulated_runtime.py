"""Simulated containers: when they end, how, and what they write."""

import pytest

from dralab.contracts.cdi_cache import ContainerConfig
from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerExit, ContainerStart, ContainerStartError
from dralab.node.logs import ContainerLog
from dralab.node.simulated_runtime import MOST_STEPS_AT_ONCE, SimulatedRuntime
from dralab.node.termination import LEAST, end, next_to_end
from dralab.runtime.simulated import SimulatedEngine


class Bench:
    def __init__(self):
        self.engine, self.programs, self.calls = SimulatedEngine(), {}, []

    def start(self, *argv, ends=False, **annotations):
        """Start a container; return it and its ends, with their times."""
        exits, log = [], ContainerLog()
        start = ContainerStart(
            namespace="d", pod="p", pod_uid="u", node="n", name="c", image="i", argv=argv,
            working_dir="", config=ContainerConfig(env={"A": "1"}), ends=ends, log=log,
            annotations={f"dralab.dev/{key.replace('_', '-')}": v for key, v in annotations.items()},
        )  # fmt: skip
        runtime = SimulatedRuntime(self.engine, self.programs)
        container = runtime.start(start, lambda over: exits.append((self.now, over)))
        container.log = lambda: [line for _, line in log.read()[0]]
        return container, exits

    @property
    def now(self):
        return self.engine.clock.now() / SECOND

    def wait(self, seconds):
        until = self.engine.clock.now() + int(seconds * SECOND)
        self.engine.at(until, lambda: None)
        while self.engine.events.next_time() is not None and self.engine.clock.now() < until:
            self.engine.events.step()


@pytest.fixture
def bench():
    return Bench()


def sh(script):
    return "sh", "-c", script


@pytest.mark.parametrize(
    ("argv", "options", "expected"),
    [
        (sh("sleep 2; exit 3"), {}, (2, 3, "Error")),
        (sh("sleep 1.5"), {}, (1.5, 0, "Completed")),
        (sh("exit 0"), {"start_delay": "4"}, (4, 0, "Completed")),
        (sh("sleep 5"), {"runs_for": "2s"}, (2, 0, "Completed")),
        (sh("sleep 5"), {"start_delay": "1", "runs_for": "2.5"}, (3.5, 0, "Completed")),
        (sh("exit 3"), {"runs_for": "2"}, (2, 0, "Completed")),
        (sh("sleep 1"), {"exit_code": "7"}, (1, 7, "Error")),
        (sh("sleep 1; exit 2"), {"exit_code": "7"}, (1, 2, "Error")),
        (("server",), {}, None),
        (("server",), {"ends": True}, (1, 0, "Completed")),
        (sh("server"), {"ends": True}, (1, 0, "Completed")),
        (("server",), {"runs_for": "9"}, (9, 0, "Completed")),
        ((), {}, None),
        (sh("sleep infinity"), {}, None),
    ],
)
def test_a_container_ends_when_it_should(bench, argv, options, expected):
    _, exits = bench.start(*argv, **options)
    bench.wait(30)
    assert [(when, over.code, over.reason) for when, over in exits] == [expected][: bool(expected)]


def test_an_annotation_for_one_container_goes_first(bench):
    container, exits = bench.start(
        *sh("echo b; sleep infinity"), **{"runs_for": "9", "runs_for.c": "2", "log": "a"}
    )
    bench.wait(30)
    assert exits == [(2, ContainerExit(0, "Completed"))]
    assert container.log() == ["a", "b"]
    with pytest.raises(
        ContainerStartError, match=r'runs-for: "soon" is not a number such as "1.5"'
    ):
        bench.start(runs_for="soon")


@pytest.mark.parametrize(
    ("trap", "expected"),
    [
        ("", (5, 143, "Error")),
        ("trap 'exit 4' TERM; ", (5, 4, "Error")),
        ("trap 'exit 0' SIGTERM; ", (5, 0, "Completed")),
        ("trap '' TERM; ", (8, 137, "Error")),
        ("trap '' SIGTERM; ", (8, 137, "Error")),
        ("trap 'echo bye' TERM; ", (8, 137, "Error")),
        ("trap 'exit 4' INT; ", (5, 143, "Error")),
    ],
)
def test_a_container_is_stopped_as_its_trap_says(bench, trap, expected):
    container, exits = bench.start(*sh(f"{trap}sleep infinity"))
    bench.wait(5)
    container.stop(3)
    bench.wait(9)
    container.stop(1)  # It is over.
    bench.wait(9)
    assert [(when, over.code, over.reason) for when, over in exits] == [expected]
    assert container.log() == (["bye"] if "bye" in trap else [])


@pytest.mark.parametrize(("again", "ends"), [(1, 7), (20, 26), (0, 6), (-3, 6)])
def test_a_container_that_is_stopped_again_has_that_time(bench, again, ends):
    container, exits = bench.start(*sh("trap '' TERM; sleep infinity"))
    bench.wait(5)
    container.stop(10)
    bench.wait(1)
    container.stop(again)
    bench.wait(30)
    assert exits == [(ends, ContainerExit(137, "Error"))]


def test_a_container_out_of_memory_says_so(bench):
    container, exits = bench.start(*sh("sleep 9"))
    bench.wait(2)
    container.run_out_of_memory()
    bench.wait(9)
    assert exits == [(2, ContainerExit(137, "OOMKilled"))]


def test_a_program_is_started_and_stopped(bench):
    bench.programs["agent"] = lambda start: lambda: bench.calls.append(start.name)
    container, exits = bench.start("/usr/bin/agent", "-v")
    bench.wait(5)
    assert not exits
    container.stop(1)
    assert (bench.calls, exits) == (["c"], [(5, ContainerExit(143, "Error"))])


def test_a_program_that_fails_is_its_containers_failure(bench):
    def broken(_start):
        raise ValueError("it does not work")

    bench.programs["agent"] = broken
    container, exits = bench.start("agent")
    bench.wait(5)
    assert exits == [(0, ContainerExit(1, "Error"))]
    assert container.log() == ["it does not work"]


def test_a_long_output_does_not_hold_time_up(bench):
    words = "a " * MOST_STEPS_AT_ONCE
    container, exits = bench.start(*sh(f"for i in {words}; do echo x; done; sleep 2"))
    bench.wait(9)
    assert exits == [(3, ContainerExit(0, "Completed"))]
    assert len(container.log()) == MOST_STEPS_AT_ONCE


@pytest.mark.parametrize(
    ("argv", "code", "lines"),
    [
        (sh("echo $A; exit 3"), 3, [(1, b"1\n")]),
        (sh("sleep 60; echo a"), 0, [(1, b"a\n")]),
        (sh("sleep infinity; echo a"), 0, []),
        (sh("echo a; server"), 0, [(1, b"a\n")]),
    ],
)
def test_a_command_beside_it_takes_no_time(bench, argv, code, lines):
    container, _ = bench.start("server")
    found = []
    assert container.run(argv, lambda *each: found.append(each)) == code
    assert found == lines
    for unknown in (["server"], []):
        with pytest.raises(ContainerStartError, match="not understood by the simulated runtime"):
            container.run(unknown, lambda *_: None)
    container.stop(0)
    with pytest.raises(ContainerStartError, match="the container is not running"):
        container.run(argv, lambda *_: None)


# --- how containers are asked to end ----------------------------------------------------------------


class Node:
    """What `end` needs of a node: the time, timers, and a recorder."""

    def __init__(self):
        self.engine, self.told = SimulatedEngine(), []
        self.clock, self.recorder = self.engine.clock, self

    def later(self, delay, action):
        self.engine.after(delay, action)

    def event(self, _obj, _kind, reason, message, **_more):
        self.told.append((reason, message))

    def offload(self, work, done):
        done(work())


class Asked:
    def __init__(self, node, *, real=False, code=0):
        self.node, self.real, self.code, self.stops = node, real, code, []

    def stop(self, grace):
        self.stops.append((self.node.clock.now() / SECOND, grace))

    def run(self, _command, _output, timeout):
        del timeout
        return self.code


def asked(hook=None, **options):
    """Return a container that runs, and its node."""
    node = Node()
    found = RunningContainer({"name": "c"} | ({"lifecycle": {"preStop": hook}} if hook else {}))
    found.container = Asked(node, **options)
    return node, found


@pytest.mark.parametrize(
    ("hook", "grace", "stops"),
    [
        (None, 5, [(0, 5)]),
        (None, 0, [(0, 0)]),
        ({"sleep": {"seconds": 3}}, 0, [(0, 0)]),
        ({"sleep": {"seconds": 3}}, 9, [(3, 6)]),
        ({"sleep": {"seconds": 8}}, 9, [(8, LEAST)]),
        ({"sleep": {"seconds": 20}}, 9, [(9, LEAST)]),
        ({"exec": {"command": ["sleep", "4"]}}, 9, [(4, 5)]),
        ({"exec": {"command": ["nginx"]}}, 9, [(0, 9)]),
        ({"httpGet": {"port": 80}}, 9, [(0, 9)]),
    ],
)
def test_a_container_is_asked_to_end_after_its_hook(hook, grace, stops):
    node, found = asked(hook)
    assert end(node, {}, found, grace)
    assert found.ends_by == grace * SECOND
    node.engine.run()
    assert found.container.stops == stops
    assert node.told == []


@pytest.mark.parametrize(("code", "told"), [(0, []), (1, ["FailedPreStopHook"])])
def test_a_hook_of_a_real_container_is_run(code, told):
    node, found = asked({"exec": {"command": ["bye"]}}, real=True, code=code)
    assert end(node, {}, found, 9)
    assert found.container.stops == [(0, 9)]
    assert [reason for reason, _ in node.told] == told


def test_only_less_time_changes_what_was_asked():
    node, found = asked()
    assert [end(node, {}, found, grace) for grace in (5, 5, 9, 2, -1)] == [True, *[False] * 4]
    assert found.container.stops == [(0, 5), (0, 2), (0, -1)]
    assert found.ends_by == 0
    found.container = None
    assert not end(node, {}, found, 5)


def test_a_run_that_came_meanwhile_is_not_stopped():
    node, found = asked({"sleep": {"seconds": 3}})
    end(node, {}, found, 9)
    before, found.container = found.container, Asked(node)
    node.engine.run()
    assert (before.stops, found.container.stops) == ([], [])


def test_sidecars_end_one_by_one():
    def made(name, *, alive=True, **fields):
        found = RunningContainer({"name": name, **fields}, init="restartPolicy" in fields)
        found.container = object() if alive else None
        return found

    sidecars = [made(name, restartPolicy="Always") for name in "ab"]
    mains = [made("c"), made("d"), made("e", alive=False)]
    assert [each.name for each in next_to_end([*sidecars, *mains])] == ["d", "c"]
    assert [each.name for each in next_to_end(sidecars)] == ["b"]
    assert next_to_end([]) == []

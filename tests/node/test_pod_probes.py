"""Which probes of a pod are run, and when."""

from types import SimpleNamespace

import pytest

from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.pod_probes import PodProbes, records


class Commands:
    """A container whose commands have the exit code that it is told."""

    def __init__(self, *, real):
        self.real, self.code, self.asked = real, 0, []

    def run(self, argv, _output, session=None, timeout=None):
        self.asked.append(argv[0])
        return self.code


@pytest.fixture
def bench():
    node = SimpleNamespace(clock=SimpleNamespace(now=lambda: bench.now), wake=lambda _pod: None)
    node.recorder = SimpleNamespace(event=lambda *_arguments, **_more: None)
    node.offload = lambda work, done: done(work())
    bench = SimpleNamespace(now=SECOND, look=None)
    bench.look = lambda each: PodProbes(node).look({}, [each], 30)
    return bench


def running(container):
    probe = {"periodSeconds": 1, "failureThreshold": 1}
    spec = {
        "name": "c",
        "readinessProbe": {**probe, "exec": {"command": ["ready"]}},
        "livenessProbe": {**probe, "exec": {"command": ["alive"]}},
    }
    each = RunningContainer(spec, container=container)
    each.probes = records(spec, 0)
    return each


def test_a_container_that_is_stopped_may_still_become_unready(bench):
    container = Commands(real=True)
    each = running(container)
    bench.look(each)
    assert each.ready
    each.stopping, container.code = True, 1
    container.asked.clear()
    bench.now = 3 * SECOND
    bench.look(each)
    assert container.asked == ["ready"], "whether it is alive does not matter any more"
    assert not each.ready


def test_a_simulated_container_that_is_stopped_is_not_asked(bench):
    each = running(container := Commands(real=False))
    each.stopping = True
    assert bench.look(each) == []
    assert container.asked == []

"""A scenario, or a recording, under another release: its API and its gates decide."""

import pytest
import yaml

from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.scenario import scenario as scenarios
from recordedruns import S, recorded, replayed

ENGINES = ("dralab", "dralab-fast")
# Two pods take a half of the only GPU each, by a consumable capacity: beta in 1.36.
HALVES = {
    "fleet": {"nodes": [{"name": "n", "cpu": 4, "gpus": 1, "model": "a"}]},
    "workload": {
        "pods": [{"name": "p", "count": 2, "cpu": 1, "gpus": 1, "gpu_milli": 500,
                  "duration": "100s", "every": "10s"}]
    },
}  # fmt: skip
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "any"},
    "spec": {"spec": {"devices": {"requests": [
        {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}
    ]}}},
}  # fmt: skip
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "annotations": {"simulation.dralab.dev/runs": "10s"}},
    "spec": {
        "containers": [{"name": "c", "resources": {"claims": [{"name": "r"}]}}],
        "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "any"}],
    },
}
GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
}


def waits(result):
    return [(each.bound - each.submitted) / S for each in sorted(result.tasks, key=lambda t: t.id)]


def run(tmp_path, *objects, version, scheduler="dralab-fast"):
    (tmp_path / "work.yaml").write_text(yaml.safe_dump_all(objects))
    content = {
        "fleet": HALVES["fleet"],
        "workload": {"manifests": "work.yaml"},
        "version": version,
        "stop": {"at": "1h"},
    }
    found = scenarios.load(tmp_path / "s.yaml", content=content, scheduler=scheduler)
    return dispatch.begin(found).go()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_gates_of_a_release_decide_in_a_replay(tmp_path, engine):
    _, week = recorded(tmp_path, HALVES)
    for version, second in (("1.36", 0), ("1.34", 90), ("1.33", 90), ("1.32", 90)):
        result, _ = replayed(week, engine, version=version)
        assert waits(result) == pytest.approx([0, second], abs=1), version
        dropped = [each for each in result.notes if "allowMultipleAllocations" in each]
        assert bool(dropped) is (second > 0), version


@pytest.mark.parametrize("engine", ENGINES)
def test_what_runs_already_holds_its_device_in_a_release_without_shares(tmp_path, engine):
    _, week = recorded(tmp_path, HALVES, late=5)
    result, _ = replayed(week, engine, version="1.33")
    assert waits(result) == pytest.approx([0, 90], abs=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_release_refuses_is_told_and_its_pods_wait(tmp_path, engine):
    (task,) = run(tmp_path, CLAIM, POD, version="1.36", scheduler=engine).tasks
    assert task.state == "Succeeded"
    result = run(tmp_path, CLAIM, POD, version="1.33", scheduler=engine)
    assert result.tasks[0].bound is None
    assert any(each.startswith("1.33 refuses ResourceClaimTemplate any: ") for each in result.notes)
    assert any("firstAvailable: its feature gate is off" in each for each in result.notes)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_kind_that_a_release_does_not_have_is_left_out_and_told(tmp_path, engine):
    alone = {**POD, "spec": {"containers": [{"name": "c"}]}}
    result = run(tmp_path, GROUP, alone, version="1.33", scheduler=engine)
    assert result.tasks[0].state == "Succeeded"
    assert any(each.startswith("1.33 refuses PodGroup default/g: ") for each in result.notes)


@pytest.mark.parametrize(
    ("version", "scheduler", "problem"),
    [
        ("1.9", "dralab", "'1.9' is not a known release of Kubernetes"),
        ("1.33", "ticks", "version: ticks has no release: choose dralab"),
    ],
)
def test_a_release_that_cannot_be_is_refused(tmp_path, version, scheduler, problem):
    with pytest.raises(InputError, match=problem):
        run(tmp_path, POD, version=version, scheduler=scheduler)

"""Bugs of the unmodified Karpenter that Kamera found (kubernetes-sigs/karpenter#2915 to #2922).

It runs under the virtual clock with its provider kwok; `karpenter/kubelet.py` reports its nodes
ready. `docs/published-bugs.md` has the results of the commit that Kamera tested, 8ae07cf8.
"""

import json
import shutil
from pathlib import Path

import pytest

import karpenterkinds
import stockparts
from builders import pod
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end, systematic_schedules
from dralab.virtualtime import unavailable
from karpenterkinds import node_class, pool, readiness

HERE = Path(__file__).parent / "karpenter"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(900),
    stockparts.needs(stockparts.KARPENTER),
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
]
SHAPES = {"s": (4, 8192, 1.0), "l": (16, 32768, 3.7)}
SETTINGS = {
    "DISABLE_LEADER_ELECTION": "true", "INSTANCE_TYPES_FILE_PATH": "types.json",
    "METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0", "SYSTEM_NAMESPACE": "kube-system",
}  # fmt: skip
ONE = {"limits": {"nodes": "1"}, "shape": "s"}


def class_is(status, after):
    target = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "name": "default",
    }
    return {
        "patch": target, "subresource": "status", "with": readiness(status), "after": f"{after}s",
    }  # fmt: skip


def delete(name, after):
    return {"delete": {"apiVersion": "v1", "kind": "Pod", "name": name}, "after": f"{after}s"}


def scenario(folder, pools, steps, check="", registration="0s"):
    """Return what happens after the NodeClass is ready; "a+b" makes two pods at once."""
    for each in HERE.glob("*.py"):
        shutil.copy(each, folder)
    written = {
        "types.json": karpenterkinds.instance_types(SHAPES),
        "kinds.yaml": karpenterkinds.definitions(),
        "pools.yaml": [node_class(registration), *pools],
    }
    script = [class_is("True", 1)]
    for step in steps:
        if isinstance(step, dict):
            script.append(step)
            continue
        names, cpu, after = step
        made = [
            pod(name, requests={"cpu": cpu}, terminationGracePeriodSeconds=0)
            for name in names.split("+")
        ]
        written[f"{names}.yaml"] = made
        script.append({"apply": f"{names}.yaml", "after": f"{after}s"})
    for name, content in written.items():
        each = [content] if name == "types.json" else content
        (folder / name).write_text("\n---\n".join(json.dumps(one) for one in each))
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    document = {
        "programs": [
            {
                "command": ["env", *settings, str(stockparts.found(stockparts.KARPENTER))],
                "name": "karpenter",
            },
            {"python": "kubelet.py:Kubelet", "name": "kubelet"},
        ],
        "manifests": ["kinds.yaml", "pools.yaml"],
        "script": script,
        # Their names are random; a NodePool counts what it has.
        "ignore": ["nodes", "karpenter.sh/nodeclaims", "karpenter.sh/nodepools"],
        "invariants": [{"python": f"checks.py:{check}"}] if check else [],
        "cluster": {"nodes": 0},
    }  # fmt: skip
    (folder / "scenario.yaml").write_text(json.dumps(document))
    return load(folder / "scenario.yaml")


@pytest.mark.parametrize(
    ("pools", "steps", "check", "registration", "wrong"),
    [
        pytest.param(
            [pool(**ONE)], [("a+b+c", "3500m", 10), {"wait": "30s"}],
            "limits_hold", "0s", "its limit is 1", id="KAR-1",
        ),
        pytest.param(
            [pool(limits={"example.com/widget": "0"}, shape="s")],
            [("a", "3500m", 10), {"wait": "30s"}],
            "a_limit_of_zero_allows_no_node", "0s", "a limit of 0 gets a node", id="KAR-5",
        ),
        pytest.param(
            [pool("first", weight=10, **ONE), pool("second", weight=1, shape="s")],
            [("a+b+c", "3500m", 10), {"wait": "30s"}],
            "both_pools_are_used", "0s", "only NodePool first is used", id="KAR-6",
        ),
        pytest.param(
            [pool(limits={"nodes": "1"})],
            [("big", "9", 10), ("small", "3", 0), delete("big", 40), {"wait": "60s"}],
            "limits_hold", "0s", "beyond the limit of 1", id="KAR-19",
        ),
        pytest.param(
            [pool(shape="s")], [("a", "3500m", 10), {"wait": "2400s"}],
            "one_node_is_enough", "16m", "NodeClaims are created for one pod", id="KAR-21",
        ),
    ],
)  # fmt: skip
def test_no_fault_is_needed(tmp_path, pools, steps, check, registration, wrong):
    with pytest.raises(ScenarioFails, match=wrong):
        expected_end(scenario(tmp_path, pools, steps, check, registration))


def test_the_limit_is_exceeded_by_one(tmp_path, seeds):
    """KAR-2: no fault is needed before 1.11.1 (#2526), a kill since."""
    steps = [*((name, "3500m", 20) for name in "abc"), {"wait": "30s"}]
    found = scenario(tmp_path, [pool(**ONE)], steps, "limits_hold")
    try:
        expected = expected_end(found)
    except ScenarioFails as failed:
        wrong = str(failed)
    else:
        wrong = str(search(found, expected, seeds(12), fail_fast=True).failures)
    assert "limits_hold" in wrong


def at_some_place(found, trials=40):
    """Return what is wrong first where each fault is tried at each place."""
    expected = expected_end(found)
    schedules = systematic_schedules(found, expected)
    return str(
        search(found, expected, range(trials), systematic=schedules, fail_fast=True).failures
    )


def test_a_node_of_a_class_that_is_not_ready_is_asked_for(tmp_path):
    """KAR-10: the change of the NodeClass is seen late."""
    steps = [
        class_is("False", 10), ("a", "3500m", 3), class_is("True", 40), {"wait": "40s"},
    ]  # fmt: skip
    check = "nothing_is_created_of_a_class_that_is_not_ready"
    found = scenario(tmp_path, [pool(shape="s")], steps, check)
    assert "a NodeClaim is created at" in at_some_place(found)


def test_a_node_goes_although_a_pod_runs_there(tmp_path):
    """KAR-12: the pod is bound after the node was found empty; it needs no invariant."""
    steps = [("a", "3500m", 10), delete("a", 30), ("b", "3500m", 19), {"wait": "60s"}]
    found = scenario(tmp_path, [pool(shape="s")], steps)
    assert "pods default/b: 0 at the end, 1 without faults" in at_some_place(found)

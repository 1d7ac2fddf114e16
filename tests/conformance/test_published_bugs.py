"""Bugs that others published, in the unmodified operators that had them: each by one schedule.

The RabbitMQ operator is built from the Go proxy. Those for ZooKeeper and Cassandra need parts that
are not served any more; `docs/agreement.md` says how they are built, and DRALAB_ZOOKEEPER_OPERATOR
and DRALAB_CASS_OPERATOR name them.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

import gomodules
from builders import definition
from dralab.kernel.clock import SECOND
from dralab.testing.faults import PlannedFault
from dralab.testing.process import ProgramSpec
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial, systematic_schedules
from dralab.virtualtime import unavailable

HERE = Path(__file__).parent / "published"
RABBITMQ = ("github.com/rabbitmq/cluster-operator", "v1.6.0")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
]


KINDS = {
    "rabbit": ("rabbitmq.com", "RabbitmqCluster", "v1beta1"),
    "zk": ("zookeeper.pravega.io", "ZookeeperCluster", "v1beta1"),
    "dc1": ("cassandra.datastax.com", "CassandraDatacenter", "v1beta1"),
}


def scenario(folder, command, name, steps, check, nodes=0, kind_file=None):
    """Return what a user does to one cluster, and what must hold."""
    group, kind, version = KINDS[name]
    for each in HERE.iterdir():
        if each.is_file():
            shutil.copy(each, folder)
    made = json.dumps(definition(group, version, kind))
    (folder / "definition.yaml").write_text(kind_file.read_text() if kind_file else made)
    target = {"apiVersion": f"{group}/{version}", "kind": kind, "name": name}
    script = []
    for verb, after, given in steps:
        step = {verb: given if verb == "apply" else target, "after": after}
        if verb == "scale":
            step["replicas"] = given
        elif verb == "patch":
            step["with"] = given
        script.append(step if verb != "wait" else {"wait": given})
    document = {
        "programs": [{"command": command, "name": "operator"}],
        "manifests": ["definition.yaml", "storage.yaml"],
        "script": script,
        "cluster": {"nodes": nodes},
        "invariants": [{"python": f"checks.py:{check}"}] if check else [],
    }
    (folder / "scenario.yaml").write_text(json.dumps(document))
    found = load(folder / "scenario.yaml")
    assert isinstance(found.programs[0], ProgramSpec)
    return found, expected_end(found)


def again(file, later):
    """A cluster is made, deleted and made again; the operator starts anew after that."""
    steps = [("apply", "5s", file), ("delete", "15s", None)]
    return [*steps, ("apply", later, file), ("wait", "", "40s")]


def old(resource, *, behind=1, duration=5 * SECOND):
    """Return a list from before the last deletion; `behind` changes old where nothing was deleted."""
    return PlannedFault(
        fault="stale-list", program="operator", verb="list", resource=resource, nth=2,
        moment="deletion", behind=behind, duration=duration,
    )  # fmt: skip


def restart(at, down=1):
    return PlannedFault(fault="restart", program="operator", at=at * SECOND, duration=down * SECOND)


def named(variable):
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} names no operator")
    return path


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory):
    """The command of the RabbitMQ operator, and the definition whose defaults it needs."""
    sources = gomodules.sources(*RABBITMQ)
    target = gomodules.program(sources, tmp_path_factory.mktemp("rabbitmq") / "source", ".")
    variables = ["KUBE_CONFIG={kubeconfig}", "OPERATOR_NAMESPACE=default"]
    options = ["--kubeconfig", "{kubeconfig}", "--metrics-addr", "0"]
    kind_file = sources / "config/crd/bases/rabbitmq.com_rabbitmqclusters.yaml"
    return ["env", *variables, str(target), *options], kind_file


def test_rabbitmq_deletes_the_server_of_a_new_cluster(rabbitmq, tmp_path):
    """rabbitmq/cluster-operator#648, found by Sieve."""
    check = "the_server_of_the_new_cluster_stays"
    command, kind_file = rabbitmq
    steps = again("rabbit.yaml", "15s")
    found, expected = scenario(tmp_path, command, "rabbit", steps, check, kind_file=kind_file)
    schedule = [restart(45), old("rabbitmqclusters.rabbitmq.com")]
    result = run_trial(found, expected, schedule, 0)
    assert "the server of the new cluster is deleted" in str(result.violations[0])
    assert run_trial(found, expected, schedule[:1], 0).violations == ()


EXPANDED = [
    ("apply", "5s", "rabbit-sized.yaml"),
    ("patch", "20s", {"spec": {"persistence": {"storage": "2Gi"}}}),
    ("wait", "", "40s"),
]


def test_rabbitmq_deletes_the_server_again_after_an_expansion(rabbitmq, tmp_path):
    """rabbitmq/cluster-operator#653, found by Sieve."""
    command, kind_file = rabbitmq
    found, expected = scenario(tmp_path, command, "rabbit", EXPANDED, "", kind_file=kind_file)
    view = old("rabbitmqclusters.rabbitmq.com", duration=15 * SECOND)
    result = run_trial(found, expected, [restart(40), view], 0)
    again = "programs delete apps/statefulsets default/rabbit-server 2 times, 1 without faults"
    assert again in [violation.text for violation in result.violations]
    # No seed of the first 45 finds it.
    schedules = systematic_schedules(found, expected)
    searched = search(found, expected, range(20), systematic=schedules, fail_fast=True)
    assert "programs delete apps/statefulsets default/rabbit-server" in str(searched.failures)


def test_rabbitmq_scales_down_if_it_missed_the_scaling_up(rabbitmq, tmp_path):
    """rabbitmq/cluster-operator#758, found by Sieve: from 1 to 3 and 2, which it refuses."""
    scaled = [("patch", after, {"spec": {"replicas": n}}) for after, n in (("20s", 3), ("5s", 2))]
    steps = [("apply", "5s", "rabbit.yaml"), *scaled, ("wait", "", "20s")]
    command, kind_file = rabbitmq
    found, expected = scenario(tmp_path, command, "rabbit", steps, "", kind_file=kind_file)
    result = run_trial(found, expected, [restart(24, down=15)], 0)
    assert any("spec.replicas is 2, without faults 3" in str(each) for each in result.violations)


def test_rabbitmq_never_expands_a_volume_when_it_died_in_between(rabbitmq, tmp_path):
    """rabbitmq/cluster-operator#782, found by Sieve."""
    command, kind_file = rabbitmq
    found, expected = scenario(tmp_path, command, "rabbit", EXPANDED, "", kind_file=kind_file)
    kill = PlannedFault(
        fault="kill", program="operator", verb="delete", resource="statefulsets.apps", nth=1,
        moment="after", duration=2 * SECOND,
    )  # fmt: skip
    result = run_trial(found, expected, [kill], 0)
    assert any("storage is 1Gi, without faults 2Gi" in str(each) for each in result.violations)


@pytest.mark.parametrize(
    ("variable", "name", "file", "resource", "at", "nodes"),
    [
        # pravega/zookeeper-operator#312
        (
            "DRALAB_ZOOKEEPER_OPERATOR", "zk", "zookeeper.yaml",
            "zookeeperclusters.zookeeper.pravega.io", 45, 2,
        ),
        # datastax/cass-operator#412, now k8ssandra/cass-operator#118
        (
            "DRALAB_CASS_OPERATOR", "dc1", "cassandra.yaml",
            "cassandradatacenters.cassandra.datastax.com", 70, 0,
        ),
    ],
)  # fmt: skip
def test_the_volumes_of_a_new_cluster_are_deleted(
    tmp_path, variable, name, file, resource, at, nodes
):
    command = [named(variable), "--kubeconfig", "{kubeconfig}"]
    steps = again(file, f"{at - 25}s")
    check = "volumes_of_the_new_cluster_stay"
    found, expected = scenario(tmp_path, command, name, steps, check, nodes)
    result = run_trial(found, expected, [restart(at), old(resource)], 0)
    assert any("a volume of the new cluster is deleted" in str(v) for v in result.violations)


def test_zookeeper_deletes_the_volume_of_a_member(tmp_path):
    """pravega/zookeeper-operator#314, found by Sieve; this schedule is of seed 6."""
    command = [named("DRALAB_ZOOKEEPER_OPERATOR"), "--kubeconfig", "{kubeconfig}"]
    steps = [
        ("apply", "5s", "zookeeper-two.yaml"), ("scale", "40s", 1), ("scale", "45s", 2),
        ("wait", "", "45s"),
    ]  # fmt: skip
    found, expected = scenario(tmp_path, command, "zk", steps, "volumes_of_members_stay", 2)
    kill = PlannedFault(
        fault="kill", program="operator", verb="update", resource="configmaps", nth=18,
        moment="after", duration=SECOND // 20,
    )  # fmt: skip
    views = [
        old("statefulsets.apps", duration=15 * SECOND),
        old("zookeeperclusters.zookeeper.pravega.io", behind=3, duration=SECOND // 2),
    ]
    result = run_trial(found, expected, [kill, *views], 6)
    assert any("a volume of a member is deleted" in str(each) for each in result.violations)

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.fleet.model import RACK_LABEL
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.typical import SHARES, SOURCES


def run(*arguments):
    return CliRunner().invoke(main, ["generate", *arguments])


def test_a_shape_becomes_pools_with_distinct_names():
    result = run("foozer-1000-tiny", "--api", "k8srm")
    pools = list(yaml.safe_load_all(result.stdout))
    assert [pool["metadata"]["name"] for pool in pools] == [
        "foozer-1000-tiny-00-pool-foozer",
        "foozer-1000-tiny-01-pool-foozer",
    ]


def test_gen_is_generate():
    assert CliRunner().invoke(main, ["gen", "sriov"]).stdout == run("sriov").stdout


def test_nodes_carry_labels_and_taints():
    result = run(
        "tpu",
        "--nodes",
        "1",
        "--with-nodes",
        "--label",
        "zone=a",
        "--taint",
        "x=y:NoSchedule",
        "-o",
        "json",
    )
    node = json.loads(result.stdout)["items"][0]
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["spec"]["taints"] == [{"key": "x", "effect": "NoSchedule", "value": "y"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], 'unknown shape "bogus"; known shapes: a100, a100-40, b200'),
        (["tpu", "--label", "a=b"], "--label and --taint apply to Node objects"),
        (["tpu", "--with-nodes", "--label", "a b=c"], '--label "a b=c": name part must consist'),
        (
            ["tpu", "--device-taint", "a=b:PreferNoSchedule"],
            "the effect must be one of NoSchedule, NoExecute",
        ),
        (["tpu", "--api", "k8srm", "--device-taint", "a=b:NoExecute"], "has no device taints"),
        (["tpu", "--nodes", "0"], "0 is not in the range"),
    ],
)
def test_bad_input_is_one_clear_line_and_code_2(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_the_sysfs_of_nodes_is_written_beside_the_manifests(tmp_path):
    found = run("fpga", "--nodes", "1", "--sysfs", str(tmp_path / "trees"))
    assert found.exit_code == 0
    assert "kind: ResourceSlice" in found.stdout
    assert (tmp_path / "trees" / "fpga-000" / "sys" / "bus" / "pci" / "devices").is_dir()
    again = run("fpga", "--nodes", "1", "--sysfs", str(tmp_path / "trees"))
    (tmp_path / "links").mkdir()
    for node in (tmp_path / "trees").iterdir():
        (tmp_path / "links" / node.name).symlink_to(tmp_path / "elsewhere")
    linked = run("fpga", "--nodes", "1", "--sysfs", str(tmp_path / "links"))
    assert "exists: use another one" in linked.output
    assert not (tmp_path / "elsewhere").exists()
    assert again.exit_code == 2
    assert "exists: use another one" in again.output
    many = run("fpga", "--nodes", "65", "--sysfs", str(tmp_path / "more"))
    assert "at most 64 nodes, not 65" in many.output


# --- workloads ------------------------------------------------------------------------------------


def scenario_of(tmp_path, *arguments):
    result = run("workload", *arguments)
    assert result.exit_code == 0, result.output
    (tmp_path / "month.yaml").write_text(result.stdout)
    return scenarios.load(tmp_path / "month.yaml")


def gpu_hours(pods, kind):
    return sum(
        pod.request.demand * ((pod.duration or 0) if pod.until is None else pod.until - pod.arrives)
        for pod in pods
        if pod.name.startswith(kind)
    ) / (1000 * 3600 * 10**9)


def test_a_workload_is_a_scenario_that_asks_for_so_much_gpu_time_of_each_kind(tmp_path):
    scenario = scenario_of(tmp_path, "--nodes", "256", "--until", "8d", "--load", "0.5")
    pods, all_of_it = scenario.pods(), 256 * 8 * 8 * 24 * 0.5
    parts = {kind: gpu_hours(pods, kind) / all_of_it for kind in ("train", "chat", "batch", "note")}
    # Replicas are whole, and run times have long tails.
    assert parts["train"] == pytest.approx(0.6, rel=0.15)
    assert parts["chat"] == pytest.approx(0.2, rel=0.2)
    assert parts["batch"] == pytest.approx(0.15, rel=0.35)
    assert parts["note"] == pytest.approx(0.05, rel=0.1)
    assert scenario.conditions.life.gangs == "recreate"
    assert scenario.conditions.random_faults.of == "gpu"


def test_gangs_of_a_workload_stay_in_a_rack_or_block(tmp_path):
    scenario = scenario_of(tmp_path, "--nodes", "72", "--gpus", "4", "--until", "9d")
    racks = {label for node in scenario.fleet.nodes for label in node.labels if "rack" in label}
    assert len(racks) == 4
    gangs = {pod.gang: pod.topology for pod in scenario.pods() if pod.gang}
    sizes = Counter(pod.gang for pod in scenario.pods() if pod.gang)
    assert {gangs[gang] for gang, size in sizes.items() if size <= 18} == {RACK_LABEL}


def test_kinds_without_a_part_and_failures_can_be_left_out(tmp_path):
    arguments = ("--share", "serving=0", "--share", "training=0", "--gpu-mtbf", "0")
    scenario = scenario_of(tmp_path, "--nodes", "8", *arguments)
    assert {pod.name.partition("-")[0] for pod in scenario.pods()} == {"batch", "notebook"}
    assert scenario.conditions.random_faults is None
    only = ("--share", "batch=0", "--share", "notebook=0", "--share", "training=0")
    assert all(pod.until for pod in scenario_of(tmp_path, "--nodes", "8", *only).pods())


def test_the_guide_and_the_file_name_the_same_sources():
    guide = (Path(__file__).parents[2] / "docs/guides/what-clusters-do.md").read_text()
    for url in SOURCES.values():
        assert url in guide
    assert run("workload").stdout == run("workload").stdout
    assert run("workload", "--seed", "7").stdout == run("workload").stdout.replace(
        "seed: 0", "seed: 7"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workload", "--share", "gaming=0.5"], "--share: 'gaming=0.5' must be KIND=PART"),
        (["workload", "--share", "batch=2"], "--share: 'batch=2' must be KIND=PART"),
        (["workload", "--until", "0"], "--until: must be above 0"),
        (["workload", "--gpu-mtbf", "often"], "--gpu-mtbf: 'often' is not a duration"),
        (["workload", "--with-nodes"], "--with-nodes is not for the shape workload"),
        (["h100", "--load", "0.5"], "--load is not for the shape h100"),
        (
            ["workload", *(x for k in SHARES for x in ("--share", f"{k}=0"))],
            "at least one kind needs a part above 0",
        ),
    ],
)
def test_options_of_workloads_that_make_no_sense_are_refused(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split()).replace("Invalid value for ", "")

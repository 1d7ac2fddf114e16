import json

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main


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

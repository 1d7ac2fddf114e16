"""The 2,319 partition sets of an A100, the same from every generation's pools."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main

DATA = Path(__file__).parents[2] / ".." / "shared" / "testdata"
SHA256 = "3f1e3342ac97c20f9bd2006f55848f65e7601978f52dd492e3b7aede747525db"


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["enumerate", "partitions", *arguments], input=stdin)


def generated(*arguments):
    return CliRunner().invoke(main, ["generate", *arguments]).stdout


def test_an_a100_has_2319_partition_sets():
    result = run("-f", "-", "--gpu", "0", stdin=generated("a100", "--nodes", "1"))
    lines = result.stdout.splitlines()
    assert len(lines) == 2319
    assert lines[:3] == [
        "[gpu-0]",
        "[gpu-0-mig-1g-5gb-0]",
        "[gpu-0-mig-1g-5gb-0 gpu-0-mig-1g-5gb-1]",
    ]
    sizes = [line.count(" ") + 1 for line in lines]
    assert [sizes.count(n) for n in range(1, 8)] == [26, 185, 581, 825, 536, 151, 15]


@pytest.mark.thorough
@pytest.mark.parametrize("api", ["k8srm", "evolution"])
def test_other_generations_have_the_same_sets(api):
    result = run(
        "-f", "-", "--gpu", "0", "--node", "nvidia-00", stdin=generated("dgxa100", "--api", api)
    )
    text = result.stdout
    if api == "evolution":
        text = re.sub(r"([1-7]g)-(\d+gb)", r"\1.\2", text)
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared test data are not here")
@pytest.mark.parametrize(
    ("file", "node", "gpu"),
    [
        ("k8srm-prototype/pools-two-nodes-one-dgxa100.yaml", "nvidia-00", 0),
        ("k8srm-prototype/pools-two-nodes-one-dgxa100.yaml", "nvidia-01", 0),
        ("dra-evolution/pools-two-nodes-dgxa100.yaml", "nvidia-00", 0),
        ("dra-evolution/pools-two-nodes-dgxa100.yaml", "nvidia-01", 7),
    ],
)
def test_the_shipped_pools_give_the_recorded_hash(file, node, gpu):
    result = run("-f", str(DATA / file), "--node", node, "--gpu", str(gpu))
    text = result.stdout.replace(f"gpu-{gpu}", "gpu-0")
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256


@pytest.mark.thorough
def test_too_many_sets_are_counted_and_not_printed():
    pools = generated("a100", "--nodes", "1")
    assert run("-f", "-", "--gpu", "1", "--count", stdin=pools).stdout == "2319\n"
    found = json.loads(run("-f", "-", "--gpu", "1", "--count", "-o", "json", stdin=pools).stdout)
    assert found["count"] == 2319
    (card,) = found["cards"]
    assert card["count"] == 2319
    result = run("-f", "-", "--gpu", "1", "--limit", "10", stdin=pools)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 10
    assert "raise --limit" in result.stderr


def test_input_without_cards_is_a_no():
    result = run("-f", "-", stdin=generated("tpu"))
    assert result.exit_code == 1
    assert "no partitionable device" in result.stderr

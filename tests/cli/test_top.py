"""`dralab top`: which devices there are, in which state, and who holds them."""

import json

import pytest
import yaml
from click.testing import CliRunner

from builders import (
    claim,
    counter_set,
    device,
    device_class,
    obj,
    pod,
    pool,
    request,
    taint,
    worker,
)
from dralab.cli.errors import UnusableInput
from dralab.cli.main import main


def held(name, device_name, *, users=(), driver="gpu.example.com", pool="n1", **more):
    result = {"request": "r0", "driver": driver, "pool": pool, "device": device_name, **more}
    status = {"allocation": {"devices": {"results": [result]}}}
    if users:
        status["reservedFor"] = [
            {"resource": "pods", "name": user, "uid": f"u-{user}"} for user in users
        ]
    return claim(name, request("r0", "gpu"), namespace="ml", status=status)


OBJECTS = [
    worker("n1"),
    worker("n2") | {"spec": {"unschedulable": True}},
    device_class("gpu"),
    # Two halves of one card, and a card of its own for each of the rest.
    *pool(
        "n1",
        device("half-0", consumes={"card": {"parts": 2}}),
        device("half-1", consumes={"card": {"parts": 2}}),
        device("whole", consumes={"card": {"parts": 4}}),
        device("sick", taints=[taint("broken")]),
        device("busy"),
        device("idle"),
        node="n1",
        counters=[counter_set("card", parts=4)],
    ),
    *pool("n2", device("d0"), device("d1"), node="n2"),
    *pool("wire", device("port"), driver="net.example.com", node=None),
    obj(
        "ResourceSlice",
        "torn",
        spec={
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "torn", "generation": 1, "resourceSliceCount": 2},
            "devices": [device("lost")],
        },
    ),
    held("a", "half-0", users=["train", "eval"]),
    held("b", "busy"),
    held("c", "idle", adminAccess=True),
    held("d", "d1", pool="n2", users=["serve"]),
    pod("waits", namespace="ml", claims={"gpu": "e"}),
    claim("e", request("r0", "gpu"), namespace="ml"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("top") / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return str(path)


def run(*arguments):
    return CliRunner().invoke(main, ["top", *arguments])


def rows(result):
    assert result.exit_code == 0, result.output
    return [
        [cell.strip() for cell in line.split("   ") if cell.strip()]
        for line in result.stdout.splitlines()
    ]


def test_every_device_has_a_state_and_its_holders(file):
    found = {
        (row["pool"], row["device"]): row
        for row in json.loads(run("-f", file, "-o", "json").stdout)
    }
    assert {key: (row["state"], row["holders"]) for key, row in found.items()} == {
        ("n1", "half-0"): ("used", ["pod ml/train", "pod ml/eval"]),
        ("n1", "half-1"): ("free", []),
        ("n1", "whole"): ("blocked", []),
        ("n1", "sick"): ("tainted", []),
        ("n1", "busy"): ("used", ["claim ml/b"]),
        ("n1", "idle"): ("free", []),
        ("n2", "d0"): ("cordoned", []),
        ("n2", "d1"): ("used", ["pod ml/serve"]),
        ("torn", "lost"): ("unusable", []),
        ("wire", "port"): ("free", []),
    }
    assert found["wire", "port"]["node"] == "(several)"
    assert set(found["n1", "idle"]) == {
        "driver", "node", "pool", "device", "state", "holders", "fill", "tainted", "unhealthy",
    }  # fmt: skip


def test_a_node_of_a_driver_is_one_line(file):
    assert rows(run("-f", file)) == [
        ["DRIVER", "NODE", "DEVICES", "FREE", "USED", "BLOCKED", "TAINTED", "CORDONED", "UNUSABLE", "HOLDERS"],
        ["gpu.example.com", "n1", "7", "2", "2", "1", "1", "0", "1", "pod ml/train, pod ml/eval, claim ml/b"],
        ["gpu.example.com", "n2", "2", "0", "1", "0", "0", "1", "0", "pod ml/serve"],
        ["net.example.com", "(several)", "1", "1", "0", "0", "0", "0", "0", "-"],
    ]  # fmt: skip


def test_a_node_and_a_driver_can_be_looked_at_alone(file):
    assert [row[1:4] for row in rows(run("-f", file, "--node", "n2", "--devices"))] == [
        ["NODE", "POOL", "DEVICE"],
        ["n2", "n2", "d0"],
        ["n2", "n2", "d1"],
        ["(several)", "wire", "port"],
    ]
    assert len(rows(run("-f", file, "--driver", "net.example.com"))) == 2


def test_a_driver_that_is_not_there_is_bad_input(file):
    result = run("-f", file, "--driver", "abacus")
    assert result.exit_code == 2
    assert (
        "no device of driver 'abacus'; known drivers: gpu.example.com, net.example.com"
        in result.stderr
    )


def test_a_watch_shows_what_waits_each_time_and_outlives_a_cluster_that_is_gone(
    tmp_path, monkeypatch
):
    copy = tmp_path / "cluster.yaml"
    copy.write_text(yaml.safe_dump_all(OBJECTS))
    looks = []

    def gone(_):
        raise UnusableInput("https://127.0.0.1:1: connection refused")

    def pause(seconds):
        looks.append(seconds)
        if len(looks) == 1:
            copy.write_text(yaml.safe_dump_all(OBJECTS[:-2]))
        elif len(looks) == 2:
            monkeypatch.setattr("dralab.cli.top.objects.snapshot", gone)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("dralab.cli.top.pause", pause)
    result = run("-f", str(copy), "--watch")
    assert result.exit_code == 0, result.output
    seen = {
        text: result.stdout.count(text)
        for text in (
            "pod ml/waits",
            "nothing waits for devices",
            "pod ml/train, pod ml/eval, claim ml/b",
            "https://127.0.0.1:1: connection refused; what follows is old",
        )
    }
    assert list(seen.values()) == [1, 2, 3, 1]
    assert looks == [2.0] * 3


def test_a_watch_is_a_table(file):
    result = run("-f", file, "--watch", "-o", "json")
    assert result.exit_code == 2
    assert "--watch shows a table" in result.stderr

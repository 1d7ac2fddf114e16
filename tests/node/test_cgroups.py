"""Limits of whole containers: what is written into the groups of the kernel."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dralab.node.cgroups import ControlGroups, settings_of
from dralab.node.orphan_guard import pids

SMALL = {"requests": {"cpu": "250m", "memory": "1Mi"}, "limits": {"cpu": "2", "memory": "64Mi"}}


@pytest.mark.parametrize(
    ("resources", "first", "second"),
    [
        (
            SMALL,
            ["256", "100000", "200000", "67108864"],
            ["35", "200000 100000", "67108864"],
        ),
        ({}, ["2", "100000", "-1", "-1"], ["1", "max 100000", "max"]),
        (
            {"limits": {"cpu": "100m"}},
            ["102", "100000", "10000", "-1"],
            ["17", "10000 100000", "max"],
        ),
    ],
)
def test_resources_are_written_as_the_kernel_counts_them(resources, first, second):
    for unified, expected in ((False, first), (True, second)):
        found = settings_of(resources, unified=unified)
        assert [text for files in found.values() for text in files.values()] == expected


@pytest.fixture
def machine(tmp_path):
    """Return the root of control groups as plain files; of version 1 or 2 by its first files."""

    def made(*, unified):
        if unified:
            (tmp_path / "cgroup.controllers").write_text("cpu memory")
        for name in () if unified else ("cpu", "memory", "pids"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "tasks").touch()
        return tmp_path

    return made


def test_the_groups_of_version_1_are_one_for_each_controller(machine):
    root = machine(unified=False)
    group = ControlGroups.found(root).create("uid", "c")
    assert group.apply(SMALL) == ""
    own = f"{group.directories['cpu'].parent.name}/poduid-c-1"
    assert (root / "cpu" / own / "cpu.shares").read_text() == "256"
    assert (root / "memory" / own / "memory.limit_in_bytes").read_text() == "67108864"
    told = group.launcher_settings()
    assert told["join"] == [f"{root}/{name}/{own}/cgroup.procs" for name in ("cpu", "memory")]
    assert told["show"] == [
        [f"{root}/cpu/{own}", "cpu"], [f"{root}/memory/{own}", "memory"], [f"{root}/pids", "pids"],
    ]  # fmt: skip


def test_the_group_of_version_2_is_one(machine):
    root = machine(unified=True)
    group = ControlGroups.found(root).create("uid", "c")
    assert group.apply(SMALL) == ""
    own = group.directories["cpu"]
    assert (own / "cpu.max").read_text() == "200000 100000"
    assert group.launcher_settings()["show"] == [[str(own), ""]]
    assert not group.was_out_of_memory()
    (own / "memory.events").write_text("max 0\noom 1\noom_kill 1\n")
    assert group.was_out_of_memory()


def test_a_limit_that_the_kernel_refuses_is_told_with_what_is_used(machine):
    root = machine(unified=False)
    group = ControlGroups.found(root).create("uid", "c")
    own = group.directories["memory"]
    (own / "memory.limit_in_bytes").mkdir()  # cannot be written
    (own / "memory.usage_in_bytes").write_text("99999999")
    assert group.apply(SMALL) == "memory limit (67108864) below current usage (99999999)"


def test_a_machine_without_groups_has_none_and_those_of_the_dead_are_removed(machine, tmp_path):
    assert ControlGroups.found(tmp_path / "none") is None
    root = machine(unified=False)
    own, space = os.getpid(), Path("/proc/self/ns/pid").stat().st_ino
    dead, others = f"dralab-999999999-{space}-5", f"dralab-999999999-{space + 1}-5"
    reused = f"dralab-{own}-{space}-5"
    for name in (dead, reused, others):
        (root / "cpu" / name / "poduid-c-1").mkdir(parents=True)
    groups = ControlGroups.found(root)
    assert not (root / "cpu" / dead).exists()
    assert not (root / "cpu" / reused).exists()
    shutil.rmtree(root / "cpu" / others)  # that namespace may well have such a process
    group = groups.create("uid", "c")
    group.remove()
    groups.close()
    assert [each.name for each in (root / "cpu").iterdir()] == ["tasks"]


def test_a_process_of_another_namespace_is_not_taken_for_the_group_of_this_one(machine):
    root = machine(unified=False)
    group = ControlGroups.found(root).create("uid", "c")
    (group.directories["cpu"] / "cgroup.procs").write_text("0\n")
    assert pids(group.directories["cpu"]) == []


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has /proc")
def test_what_is_left_in_the_group_of_a_dead_server_is_killed(machine):
    root = machine(unified=False)
    space = Path("/proc/self/ns/pid").stat().st_ino
    container = root / "cpu" / f"dralab-999999999-{space}-5" / "poduid-c-1"
    container.mkdir(parents=True)
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as left:
        (container / "cgroup.procs").write_text(f"{left.pid}\n")
        ControlGroups.found(root)
        assert left.wait() == -signal.SIGKILL

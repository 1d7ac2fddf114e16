"""The case files: Kubernetes' own table, random problems, and defects of Kubernetes."""

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.allocation import v1
from dralab.allocation.check.conformance import solved
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.outcome import Unsatisfiable
from dralab.allocation.problem import AllocationFeatures
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.cli.conformance import allocator as command

CASES = Path(__file__).parents[3] / ".." / "shared" / "cases"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the case files are not beside the project"
)


@pytest.mark.parametrize("name", ["allocator-cases", "fuzz-cases", "known-defects"])
def test_every_case_passes(name: str, tmp_path: Path) -> None:
    out = tmp_path / "results"
    run = CliRunner().invoke(command, [str(CASES / f"{name}.json"), "--write", str(out)])
    count = len(json.loads((CASES / f"{name}.json").read_text()))
    assert run.output.splitlines()[-1] == f"{count} passed, 0 failed", run.output
    assert run.exit_code == 0
    assert len(out.read_text().splitlines()) == count


def test_the_written_results_pass_the_judge_that_came_with_the_cases(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("check_cases", CASES / "check_cases.py")
    assert spec is not None
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    out = tmp_path / "results"
    CliRunner().invoke(command, [str(CASES / "allocator-cases.json"), "--write", str(out)])
    found = {each["name"]: each for each in map(json.loads, out.read_text().splitlines())}
    for case in json.loads((CASES / "allocator-cases.json").read_text()):
        each = found[case["name"]]
        assert judge.check(case, each["results"], each["error"]) == []


def test_upstreams_devices_are_chosen_where_upstream_solves_a_case(tmp_path: Path) -> None:
    out = tmp_path / "results"
    CliRunner().invoke(command, [str(CASES / "fuzz-cases.json"), "--write", str(out)])
    found = {
        each["name"]: each["results"] for each in map(json.loads, out.read_text().splitlines())
    }
    compared = 0
    for case in json.loads((CASES / "fuzz-cases.json").read_text()):
        upstream = case["upstream"]["master-3d03671-2026-07-01/experimental"]
        if not (upstream["feasible"] and case["expectFeasible"]):
            continue
        compared += 1
        mine = [
            [
                [x["request"], x["driver"], x["pool"], x["device"]]
                for x in each["devices"]["results"]
            ]
            for each in found[case["name"]]
        ]
        assert mine == upstream["devices"], case["name"]
    assert compared > 20


def test_a_failing_case_is_named_and_counted(tmp_path: Path) -> None:
    cases = json.loads((CASES / "known-defects.json").read_text())
    cases[0]["expect"] = {"feasible": False}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases))
    run = CliRunner().invoke(command, [str(path)])
    assert run.exit_code == 1
    assert f"FAIL {cases[0]['name']}" in run.output
    assert run.output.splitlines()[-1] == f"{len(cases) - 1} passed, 1 failed"


@pytest.mark.parametrize("text", ["{", "{}", '[{"name": "x"}]'])
def test_a_file_that_holds_no_cases_is_bad_input(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    run = CliRunner().invoke(command, [str(path)])
    assert run.exit_code == 2
    assert "cases.json" in run.output


def bare(allocations: list[dict]) -> list[object]:
    found: list[object] = []
    for each in allocations:
        results = [
            item | ({"shareID": "some"} if item.get("shareID") else {})
            for item in each["devices"].get("results", [])
        ]
        found.append((results, each["devices"].get("config"), each.get("nodeSelector")))
    return found


@pytest.mark.parametrize("name", ["allocator-cases", "fuzz-cases", "known-defects"])
def test_a_fleet_of_one_node_answers_like_the_search(name: str) -> None:
    reader = v1.V1Reader(CelSelectorCompiler())
    for case in json.loads((CASES / f"{name}.json").read_text()):
        fleet = Fleet(
            [case["node"]],
            case["slices"],
            case["classes"],
            features=AllocationFeatures.named(case["features"]),
        )
        held = [{"request": "r", **item} for item in case["allocatedDevices"]]
        amounts = {
            (x["driver"], x["pool"], x["device"]): x["consumedCapacity"]
            for x in case.get("allocatedCapacity", [])
        }
        shares = {
            (x["driver"], x["pool"], x["device"]) for x in case.get("allocatedSharedDeviceIDs", [])
        } | amounts.keys()
        held += [
            {
                "request": "r",
                "driver": key[0],
                "pool": key[1],
                "device": key[2],
                "shareID": "x",
                "consumedCapacity": amounts.get(key, {}),
            }
            for key in sorted(shares)
        ]
        fleet.mark_in_use({"devices": {"results": held}})
        found = fleet.allocate(case["claims"]) if case["claims"] else DevicePlacement("", [])
        results, error = solved(case, reader)
        if isinstance(found, DevicePlacement):
            assert bare(found.allocations) == bare(results), case["name"]
        else:
            assert isinstance(found, Unsatisfiable)
            assert (results, error) == ([], found.error or None), case["name"]

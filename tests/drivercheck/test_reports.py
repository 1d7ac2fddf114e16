"""What a bench prints and writes."""

import json
from xml.etree import ElementTree as ET

import pytest

from dralab.drivercheck import reports
from dralab.drivercheck.catalog import MUST, SHOULD, Check
from dralab.drivercheck.runner import CheckResult, Outcome, Report


def check(id, level=MUST):
    return Check(id=id, level=level, sentence=f"{id} holds.", source="proto", run=lambda _: None)


def report(*ends):
    results = [
        CheckResult(check=check(name, level), outcome=outcome, text=text, transcript=("gRPC | x",))
        for name, level, outcome, text in ends
    ]
    return Report(target="./driver", driver="d.example.com", results=results, seconds=1.5)


GOOD = ("registration.type", MUST, Outcome.PASSED, "")
WEAK = ("slices.owner", SHOULD, Outcome.FAILED, "no owner")
BAD = ("slices.complete", MUST, Outcome.FAILED, "1 < 2 & \x00")
NONE = ("health.first", MUST, Outcome.SKIPPED, "it tells no health")
STUCK = ("prepare.answers", MUST, Outcome.BLOCKED, "it never came up")


@pytest.mark.parametrize(
    ("ends", "conformant", "line"),
    [
        ([GOOD], True, "conformant: 1 of 1 MUST, 0 of 0 SHOULD, 0 skipped"),
        ([GOOD, WEAK, NONE], True, "conformant: 1 of 1 MUST, 0 of 1 SHOULD, 1 skipped"),
        ([GOOD, BAD], False, "not conformant: 1 of 2 MUST, 0 of 0 SHOULD, 0 skipped"),
        ([GOOD, STUCK], False, "not conformant: 1 of 2 MUST, 0 of 0 SHOULD, 0 skipped"),
        ([NONE], False, "not conformant: 0 of 0 MUST, 0 of 0 SHOULD, 1 skipped"),
    ],
)
def test_a_driver_is_conformant_if_it_keeps_each_must_that_applies(ends, conformant, line):
    found = report(*ends)
    assert found.conformant is conformant
    assert reports.verdict(found) == line


def test_the_matrix_has_a_row_for_each_group():
    rows = reports.matrix(report(GOOD, WEAK, BAD, NONE))
    assert rows[1:] == [
        ["registration", "1/1", "0/0", "0", "✓"],
        ["slices", "0/1", "0/1", "0", "✗✗"],
        ["health", "0/0", "0/0", "1", "-"],
    ]


def test_of_one_cause_only_the_first_failure_says_all():
    why = "claim-%s (a3bb189e-8bf9-4d2a-9e7c-1f2b3c4d5e6%s) was not prepared: no room"
    ends = [(f"prepare.{n}", MUST, Outcome.FAILED, why % (n, n)) for n in (1, 2)]
    text = "\n".join(reports.failures(report(*ends, BAD).results))
    assert text.count("no room") == 1
    assert "✗ prepare.2 (MUST): prepare.2 holds.\n  the same as in prepare.1\n" in text
    assert text.count("transcript:") == 2
    assert "1 < 2" in text


def test_junit_fails_for_a_must_and_skips_a_should():
    root = ET.fromstring(reports.as_junit(report(GOOD, WEAK, BAD, NONE)))  # noqa: S314 - ours
    [suite] = [each for each in root if each.get("name") == "slices"]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    found = {case.get("name"): case for case in root.iter("testcase")}
    assert found["slices.complete"].find("failure").get("message") == "1 < 2 & �"
    assert "gRPC | x" in found["slices.complete"].find("failure").text
    assert found["slices.owner"].find("skipped").get("message") == "SHOULD: no owner"
    assert found["health.first"].find("skipped").get("message") == "it tells no health"
    assert list(found["registration.type"]) == []


def test_the_page_and_the_document_name_all_checks():
    found = report(GOOD, BAD)
    page = reports.as_markdown(found)
    assert page.startswith("# Conformance of d.example.com\n")
    assert "### slices.complete (MUST)" in page
    assert "| ✓ | `registration.type` | MUST | registration.type holds. |  |" in page
    document = json.loads(reports.as_json(found))
    assert [each["outcome"] for each in document["checks"]] == ["passed", "failed"]
    assert document["conformant"] is False


def test_the_badge_counts_the_rules_that_are_kept():
    badge = ET.fromstring(reports.as_badge(report(GOOD, WEAK, NONE)))  # noqa: S314 - ours
    assert [text.text for text in badge.iter("{http://www.w3.org/2000/svg}text")] == [
        "DRA conformance", "1/2",
    ]  # fmt: skip

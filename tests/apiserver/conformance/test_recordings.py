"""The server beside the recorded answers of a real one."""

import json
from pathlib import Path

import pytest

from dralab.apiserver.conformance.comparison import Correspondence, differences
from dralab.apiserver.conformance.replay import ON_PURPOSE, RecordingError, Replay, cases_of
from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question

DATA = (Path(__file__).parents[3] / ".." / "shared/testdata/apiserver").resolve()
DECISION = Path(__file__).parents[3] / "docs/decisions/api-differences.md"
# What a dry run shows instead of addresses, and what no recording can know.
UNSTABLE = ("uid", "creationTimestamp", "managedFields", "nodePort", "clusterIP", "clusterIPs")


def recording(name: str):
    file = DATA / name
    if not file.exists():
        pytest.skip("the recordings of a real server are not beside this checkout")
    return cases_of(json.loads(file.read_text()))


@pytest.fixture(scope="module")
def outcomes():
    cases = recording("semantics-v1.36.json")
    return list(Replay(InProcess()).run(cases))


def test_every_recorded_request_is_answered_as_recorded_or_differently_on_purpose(outcomes):
    assert len(outcomes) == 211
    failed = [
        f"{outcome.number} {outcome.name}: {outcome.problems}"
        for outcome in outcomes
        if outcome.problems and not outcome.on_purpose
    ]
    assert failed == []


def test_what_differs_on_purpose_is_little_and_has_its_reason_in_writing(outcomes):
    different = {outcome.name for outcome in outcomes if outcome.problems}
    assert len(different) <= 10
    assert different == set(ON_PURPOSE)
    page = DECISION.read_text()
    assert [name for name in ON_PURPOSE if f"`{name}`" not in page] == []


def stable(value):
    if isinstance(value, dict):
        return {key: stable(item) for key, item in value.items() if key not in UNSTABLE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def defaulted():
    if not (DATA / "defaults.json").exists():
        return []
    return json.loads((DATA / "defaults.json").read_text())["cases"]


@pytest.mark.skipif(not defaulted(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("case", defaulted(), ids=lambda case: case["case"])
def test_minimal_objects_become_what_a_real_server_makes_of_them(case):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    reply = InProcess().send(
        Question(
            method="POST",
            target=f"{case['path']}?dryRun=All",
            headers=headers,
            body=json.dumps(case["body"]).encode(),
        )
    )
    found = list(differences(stable(case["answer"]), stable(reply.json()), Correspondence()))
    assert (reply.status, found) == (case["status"], [])
    if warning := case.get("warning"):
        assert warning in reply.headers["warning"]


def test_a_difference_is_told_with_its_place():
    there = {"metadata": {"name": "a", "labels": {"x": "1"}}, "items": [1, 2]}
    here = {"metadata": {"name": "b"}, "items": [1], "extra": True}
    assert list(differences(there, here, Correspondence())) == [
        'metadata.name: "a" was recorded, this is "b"',
        'metadata.labels: {"x": "1"} was recorded, and is missing',
        "items: 2 were recorded, these are 1",
        "extra: true was not recorded",
    ]


def test_equal_revisions_of_the_recording_must_be_equal_here():
    same = Correspondence()
    there = [{"resourceVersion": "7"}, {"resourceVersion": "7"}]
    assert not list(differences(there, [{"resourceVersion": "3"}] * 2, same))
    assert list(differences(there[:1], [{"resourceVersion": "4"}], same))


@pytest.mark.parametrize("content", [None, [], {"cases": 1}, {"cases": [{"case": "x"}]}])
def test_what_is_no_recording_is_refused(content):
    with pytest.raises(RecordingError):
        cases_of(content)

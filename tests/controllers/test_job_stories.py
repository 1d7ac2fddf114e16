"""Jobs on a node in simulated time: their counts, conditions and events, second by second.

The expectations record what dralab does; those that surprised were compared with the job controller
of Kubernetes 1.36.
"""

from collections import Counter

import pytest

from dralab import SimulatedCluster
from dralab.objects.conditions import conditions_of
from dralab.runtime.resources import EVENTS, JOBS

COUNTS = ("active", "ready", "succeeded", "failed", "terminating")
LISTS = ("completedIndexes", "failedIndexes")


def brief(job):
    """Return the counts of a job, its indexes that are done and failed, and its conditions."""
    status = job.get("status", {})
    words = ["".join(str(status.get(name) or 0) for name in COUNTS)]
    words += [f"{name[:-7]}={status[name]}" for name in LISTS if status.get(name)]
    words += [
        f"{each['type']}:{each.get('reason', '')}"
        for each in conditions_of(job)
        if each["status"] == "True"
    ]
    times = ("startTime" in status, "completionTime" in status)
    return " ".join([*words, {(True, True): "done", (False, False): "unstarted"}.get(times, "")])


def story(script, spec, changes, seconds):
    """Return what is told of a job whenever it changes, with seconds, and its events at the end."""
    lab = SimulatedCluster(nodes=["n1"])
    container = {"name": "m", "image": "x", "command": ["sh", "-c", script]}
    pods = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"spec": pods | spec.pop("pods", {})}
    lab.client.create(
        JOBS, {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}, "default"
    )
    found, last = [], ""
    for second in range(seconds + 1):
        lab.wait(1 if second else 0.01)
        if second in changes:
            lab.client.patch(JOBS, "j", {"spec": changes[second]}, "default")
            lab.wait(0.01)
        jobs = lab.client.list(JOBS, "default").items
        now = brief(jobs[0]).rstrip() if jobs else "gone"
        if now != last:
            found.append(f"{second} {now}")
            last = now
    told = Counter()
    for each in lab.client.list(EVENTS, "default").items:
        if each["involvedObject"]["kind"] == "Job":
            told[f"{each['type']} {each['reason']}"] += each.get("count", 1)
    return [*found, *(f"{what} x{count}" for what, count in sorted(told.items()))]


STORIES = {
    "a job is complete with its last pod": (
        "sleep 2",
        {"completions": 3, "parallelism": 2},
        {},
        8,
        [
            "0 22000",
            "2 11200",
            "4 00300 SuccessCriteriaMet:CompletionsReached Complete:CompletionsReached done",
            "Normal Completed x1",
            "Normal SuccessfulCreate x3",
        ],
    ),
    "a failed pod is made again, ever later": (
        "sleep 1; exit 3",
        {"backoffLimit": 2},
        {},
        40,
        [
            "0 11000",
            "1 00010",
            "11 11010",
            "12 00020",
            "32 11020",
            "33 00030 FailureTarget:BackoffLimitExceeded Failed:BackoffLimitExceeded",
            "Normal SuccessfulCreate x3",
            "Warning BackoffLimitExceeded x1",
        ],
    ),
    "a job without completions is over when its pods are": (
        "sleep 2",
        {"parallelism": 2},
        {},
        6,
        [
            "0 22000",
            "2 00200 SuccessCriteriaMet:CompletionsReached Complete:CompletionsReached done",
            "Normal Completed x1",
            "Normal SuccessfulCreate x2",
        ],
    ),
    "each index is done once": (
        "sleep 2",
        {"completionMode": "Indexed", "completions": 4, "parallelism": 2},
        {},
        8,
        [
            "0 22000",
            "2 22200 completed=0,1",
            "4 00400 completed=0-3 SuccessCriteriaMet:CompletionsReached Complete:CompletionsReached done",
            "Normal Completed x1",
            "Normal SuccessfulCreate x4",
        ],
    ),
    "an index that fails too often fails the job in the end": (
        "sleep 1; exit $JOB_COMPLETION_INDEX",
        {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "backoffLimitPerIndex": 1,
            "backoffLimit": 9,
        },
        {},
        20,
        [
            "0 22000",
            "1 00110 completed=0",
            "11 11110 completed=0",
            "12 00120 completed=0 failed=1 FailureTarget:FailedIndexes Failed:FailedIndexes",
            "Normal SuccessfulCreate x3",
            "Warning FailedIndexes x1",
        ],
    ),
    "so many indexes may fail": (
        "sleep 1; exit $JOB_COMPLETION_INDEX",
        {
            "completionMode": "Indexed",
            "completions": 4,
            "parallelism": 1,
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": 1,
        },
        {},
        12,
        [
            "0 11000",
            "1 11100 completed=0",
            "2 11110 completed=0 failed=1",
            "3 00120 completed=0 failed=1,2 FailureTarget:MaxFailedIndexesExceeded Failed:MaxFailedIndexesExceeded",
            "Normal SuccessfulCreate x3",
            "Warning MaxFailedIndexesExceeded x1",
        ],
    ),
    "some indexes are enough": (
        "sleep $JOB_COMPLETION_INDEX",
        {
            "completionMode": "Indexed",
            "completions": 4,
            "parallelism": 4,
            "successPolicy": {"rules": [{"succeededIndexes": "0-2", "succeededCount": 2}]},
        },
        {},
        6,
        [
            "0 33100 completed=0",
            "1 00200 completed=0,1 SuccessCriteriaMet:SuccessPolicy Complete:SuccessPolicy done",
            "Normal Completed x1",
            "Normal SuccessfulCreate x4",
            "Normal SuccessfulDelete x2",
        ],
    ),
    "it is suspended and resumed": (
        "sleep 5",
        {"suspend": True},
        {2: {"suspend": False}, 4: {"suspend": True}, 7: {"suspend": False}},
        16,
        [
            "0 00000 Suspended:JobSuspended unstarted",
            "2 11000",
            "4 00000 Suspended:JobSuspended unstarted",
            "7 11000",
            "12 00100 SuccessCriteriaMet:CompletionsReached Complete:CompletionsReached done",
            "Normal Completed x1",
            "Normal Resumed x2",
            "Normal SuccessfulCreate x2",
            "Normal SuccessfulDelete x1",
            "Normal Suspended x2",
        ],
    ),
    "it has a deadline": (
        "trap  TERM; sleep 50",
        {"activeDeadlineSeconds": 4},
        {},
        9,
        [
            "0 11000",
            "4 00010 FailureTarget:DeadlineExceeded Failed:DeadlineExceeded",
            "Normal SuccessfulCreate x1",
            "Normal SuccessfulDelete x1",
            "Warning DeadlineExceeded x1",
        ],
    ),
    "it is forgotten": (
        "sleep 1",
        {"ttlSecondsAfterFinished": 5},
        {},
        9,
        [
            "0 11000",
            "1 00100 SuccessCriteriaMet:CompletionsReached Complete:CompletionsReached done",
            "6 gone",
            "Normal Completed x1",
            "Normal SuccessfulCreate x1",
        ],
    ),
    "a code that says all is lost": (
        "sleep 1; exit 42",
        {
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [41, 42]}}
                ]
            }
        },
        {},
        5,
        [
            "0 11000",
            "1 00010 FailureTarget:PodFailurePolicy Failed:PodFailurePolicy",
            "Normal SuccessfulCreate x1",
            "Warning PodFailurePolicy x1",
        ],
    ),
    "codes that do not count": (
        "sleep 1; exit 42",
        {
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1]}}]
            },
        },
        {},
        3,
        [
            "0 11000",
            "Normal SuccessfulCreate x4",
        ],
    ),
    "an index is given up by a rule": (
        "sleep 1; exit $JOB_COMPLETION_INDEX",
        {
            "completionMode": "Indexed",
            "completions": 3,
            "parallelism": 3,
            "backoffLimitPerIndex": 5,
            "podFailurePolicy": {
                "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]
            },
        },
        {},
        25,
        [
            "0 33000",
            "1 00120 completed=0 failed=1",
            "11 11120 completed=0 failed=1",
            "12 00130 completed=0 failed=1",
            "Normal SuccessfulCreate x4",
        ],
    ),
    "pods that restart in place": (
        "sleep 1; exit 3",
        {"backoffLimit": 2, "pods": {"restartPolicy": "OnFailure"}},
        {},
        40,
        [
            "0 11000",
            "2 10000",
            "12 00010 FailureTarget:BackoffLimitExceeded Failed:BackoffLimitExceeded",
            "Normal SuccessfulCreate x1",
            "Normal SuccessfulDelete x1",
            "Warning BackoffLimitExceeded x1",
        ],
    ),
    "more and fewer at a time": (
        "sleep 4",
        {"completions": 6, "parallelism": 1},
        {1: {"parallelism": 3}, 6: {"parallelism": 1}},
        16,
        [
            "0 11000",
            "1 33000",
            "4 33100",
            "5 33300",
            "6 11300",
            "8 11400",
            "12 11500",
            "16 00600 SuccessCriteriaMet:CompletionsReached Complete:CompletionsReached done",
            "Normal Completed x1",
            "Normal SuccessfulCreate x8",
            "Normal SuccessfulDelete x2",
        ],
    ),
    "an elastic job": (
        "sleep 3",
        {"completionMode": "Indexed", "completions": 4, "parallelism": 4},
        {1: {"completions": 2, "parallelism": 2}},
        6,
        [
            "0 44000",
            "1 22000",
            "Normal SuccessfulCreate x4",
            "Normal SuccessfulDelete x2",
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_job_goes_as_in_kubernetes(name):
    script, spec, changes, seconds, expected = STORIES[name]
    assert story(script, dict(spec), changes, seconds) == expected

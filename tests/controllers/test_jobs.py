import pytest

from dralab.api.status import ApiError
from dralab.controllers import registry
from dralab.controllers.job_failures import index_of
from dralab.runtime.resources import CRON_JOBS, EVENTS, JOBS, PODS
from labs import Lab


@pytest.fixture
def idle_lab():
    made = Lab()
    for name in ("job-controller", "cronjob-controller", "garbage-collector-controller"):
        registry.CONTROLLERS[name](made.manager)
    made.add_node("n0")
    return made


@pytest.fixture
def lab(idle_lab):
    idle_lab.start()
    return idle_lab


def job(name, **spec):
    template = {
        "spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def active(lab):
    return [p for p in lab.all(PODS) if p["status"]["phase"] in {"Pending", "Running"}]


def end(lab, count=1, phase="Succeeded"):
    for obj in active(lab)[:count]:
        lab.end_pod(obj["metadata"]["name"], phase)
    lab.wait(0.1)


def bind(lab):
    """Give the pods a node, so that they are there until its kubelet has ended them."""
    for obj in active(lab):
        target = {"kind": "Node", "name": "n0"}
        body = {"metadata": {"name": obj["metadata"]["name"]}, "target": target}
        lab.client.post(PODS, obj["metadata"]["name"], "binding", body, "default")


def end_deleted(lab):
    for obj in lab.all(PODS):
        if "deletionTimestamp" in obj["metadata"]:
            lab.delete(PODS, obj["metadata"]["name"], gracePeriodSeconds=0)
    lab.wait(0.1)


def conditions(lab, name="j"):
    found = lab.get(JOBS, name)["status"].get("conditions", [])
    return {c["type"]: c["reason"] for c in found if c["status"] == "True"}


def test_a_job_runs_until_enough_pods_have_succeeded(lab):
    lab.add(JOBS, job("j", completions=3, parallelism=2))
    lab.wait(1)
    assert len(active(lab)) == 2
    end(lab)
    assert len(active(lab)) == 2
    end(lab, 2)
    status = lab.get(JOBS, "j")["status"]
    assert status["succeeded"] == 3
    assert status["completionTime"]
    assert conditions(lab) == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }


def test_an_ended_pod_counts_once_even_when_it_is_deleted_at_once(lab):
    lab.add(JOBS, job("j", completions=2))
    lab.wait(1)
    [first] = active(lab)
    name = first["metadata"]["name"]
    lab.end_pod(name)
    lab.delete(PODS, name, gracePeriodSeconds=0)
    lab.wait(1)
    assert lab.find(PODS, name) is None
    assert lab.get(JOBS, "j")["status"]["succeeded"] == 1


def test_failed_pods_are_replaced_ever_more_slowly_until_the_limit(lab):
    lab.add(JOBS, job("j", backoffLimit=2))
    lab.wait(1)
    end(lab, phase="Failed")
    lab.wait(5)
    assert active(lab) == []
    lab.wait(6)
    assert len(active(lab)) == 1
    end(lab, phase="Failed")
    lab.wait(15)
    assert active(lab) == []
    lab.wait(6)
    end(lab, phase="Failed")
    assert conditions(lab)["Failed"] == "BackoffLimitExceeded"


@pytest.mark.parametrize(("limit", "most"), [(0, 1), (1, 1), (3, 3)])
def test_restarts_in_place_count_against_the_limit(lab, limit, most):
    made = job("j", backoffLimit=limit)
    made["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    lab.add(JOBS, made)
    lab.wait(1)
    [name] = [p["metadata"]["name"] for p in active(lab)]
    for count in range(most + 1):
        assert ("Failed" in conditions(lab)) == (count > most)
        status = {"name": "c", "image": "x", "imageID": "", "ready": False, "restartCount": count}
        lab.set_status(PODS, name, phase="Running", containerStatuses=[status])
        lab.wait(1)
    assert conditions(lab)["Failed"] == "BackoffLimitExceeded"
    assert active(lab) == []


def test_indexed_pods_know_their_index_and_each_counts_once(lab):
    lab.add(JOBS, job("j", completions=3, parallelism=3, completionMode="Indexed"))
    lab.wait(1)
    indexes = [
        p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        for p in active(lab)
    ]
    assert sorted(indexes) == ["0", "1", "2"]
    assert active(lab)[0]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    end(lab, 3)
    status = lab.get(JOBS, "j")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")


@pytest.mark.parametrize("replaced", ["TerminatingOrFailed", "Failed"])
def test_a_job_past_its_deadline_stops_its_pods_and_then_has_failed(lab, replaced):
    lab.add(JOBS, job("j", activeDeadlineSeconds=30, podReplacementPolicy=replaced))
    lab.wait(29)
    assert len(active(lab)) == 1
    bind(lab)
    lab.wait(2)
    assert conditions(lab) == {"FailureTarget": "DeadlineExceeded"}
    status = lab.get(JOBS, "j")["status"]
    assert (status["terminating"], status["failed"]) == (1, 1)
    end_deleted(lab)
    assert conditions(lab)["Failed"] == "DeadlineExceeded"
    status = lab.get(JOBS, "j")["status"]
    assert (status["terminating"], status["failed"]) == (0, 1)


def test_a_pod_that_comes_after_its_job_ended_is_deleted(lab):
    lab.add(JOBS, job("j"))
    lab.wait(1)
    (late,) = active(lab)
    metadata = {k: late["metadata"][k] for k in ("labels", "finalizers", "ownerReferences")}
    end(lab)
    assert "Complete" in conditions(lab)
    lab.add(PODS, {**late, "metadata": {"name": "late", "namespace": "default", **metadata}})
    lab.wait(1)
    assert active(lab) == []


def test_suspending_and_resuming_are_events(lab):
    lab.add(JOBS, job("j"))
    lab.wait(1)
    for suspended in (True, False):
        lab.client.patch(JOBS, "j", {"spec": {"suspend": suspended}}, "default")
        lab.wait(1)
    said = {event["reason"]: event["message"] for event in lab.all(EVENTS)}
    assert said["Suspended"] == "Job suspended"
    assert said["Resumed"] == "Job resumed"


def test_one_job_that_began_in_the_year_0_is_late_and_stops_no_other(idle_lab):
    lab, then = idle_lab, "0000-01-01T00:00:00Z"
    lab.add(JOBS, job("j", activeDeadlineSeconds=30), job("k", ttlSecondsAfterFinished=60))
    lab.set_status(JOBS, "j", startTime=then)
    ended = [
        {"type": kind, "status": "True", "lastTransitionTime": then}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    lab.set_status(JOBS, "k", conditions=ended, startTime=then, completionTime=then)
    lab.start()
    lab.wait(5)
    assert conditions(lab)["Failed"] == "DeadlineExceeded"
    assert lab.find(JOBS, "k") is None


@pytest.mark.parametrize("change", [{"parallelism": 1}, {"suspend": True}])
def test_a_pod_that_the_job_itself_removes_has_not_failed(lab, change):
    lab.add(JOBS, job("j", completions=4, parallelism=3))
    lab.wait(1)
    lab.patch(JOBS, "j", {"spec": change})
    lab.wait(1)
    assert len(active(lab)) == change.get("parallelism", 0)
    assert not lab.get(JOBS, "j")["status"].get("failed")


def test_a_suspended_job_has_no_pods_until_it_is_resumed(lab):
    lab.add(JOBS, job("j", suspend=True))
    lab.wait(1)
    assert active(lab) == []
    assert conditions(lab)["Suspended"] == "JobSuspended"
    lab.patch(JOBS, "j", {"spec": {"suspend": False}})
    lab.wait(1)
    assert len(active(lab)) == 1


def test_a_finished_job_is_forgotten_after_its_time(lab):
    lab.add(JOBS, job("j", ttlSecondsAfterFinished=60))
    lab.wait(1)
    end(lab)
    lab.wait(58)
    assert lab.find(JOBS, "j")
    lab.wait(5)
    assert lab.find(JOBS, "j") is None
    assert lab.names(PODS) == []


def fail(lab, code=1, index=None, **condition):
    """End one running pod, of an index if one is given, with an exit code."""
    for obj in active(lab):
        if index is None or index_of(obj) == index:
            break
    else:
        raise AssertionError(f"no pod of index {index}")
    name = obj["metadata"]["name"]
    ended = {"terminated": {"exitCode": code, "finishedAt": lab.manager.now()}}
    held = [{"type": k, "status": v} for k, v in condition.items()]
    statuses = [{"name": "main", "state": ended, "image": "", "imageID": "", "ready": False,
                 "restartCount": 0}]  # fmt: skip
    lab.set_status(PODS, name, containerStatuses=statuses, conditions=held, phase="Failed")
    lab.wait(0.1)


def rule(action, *codes, condition="", operator="In"):
    if condition:
        return {"action": action, "onPodConditions": [{"type": condition}]}
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


def test_a_rule_ends_the_job_at_the_first_failure_of_a_kind(lab):
    policy = {"rules": [rule("Count", 1), rule("FailJob", 42)]}
    lab.add(JOBS, job("j", podFailurePolicy=policy, completions=2, parallelism=2))
    lab.wait(1)
    fail(lab, 1)
    lab.wait(15)
    assert len(active(lab)) == 2
    fail(lab, 42)
    assert conditions(lab)["Failed"] == "PodFailurePolicy"
    [said] = [c for c in lab.get(JOBS, "j")["status"]["conditions"] if c["type"] == "Failed"]
    assert said["message"].startswith("Container main for pod default/j-")
    assert said["message"].endswith("failed with exit code 42 matching FailJob rule at index 1")
    assert active(lab) == []


def test_a_failure_that_is_ignored_does_not_count(lab):
    policy = {"rules": [rule("Ignore", condition="DisruptionTarget")]}
    lab.add(JOBS, job("j", podFailurePolicy=policy, backoffLimit=0))
    lab.wait(1)
    for _ in range(3):
        fail(lab, 137, DisruptionTarget="True")
        lab.wait(1)
    assert "failed" not in lab.get(JOBS, "j")["status"]
    assert len(active(lab)) == 1
    assert all("finalizers" not in p["metadata"] for p in lab.all(PODS) if p not in active(lab))
    fail(lab, 137)
    assert conditions(lab)["Failed"] == "BackoffLimitExceeded"


def test_all_codes_but_some(lab):
    policy = {"rules": [rule("FailJob", 3, operator="NotIn")]}
    lab.add(JOBS, job("j", podFailurePolicy=policy))
    lab.wait(1)
    fail(lab, 3)
    assert "Failed" not in conditions(lab)
    lab.wait(15)
    fail(lab, 4)
    assert conditions(lab)["Failed"] == "PodFailurePolicy"


def test_each_index_has_failures_of_its_own(lab):
    more = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
    lab.add(JOBS, job("j", backoffLimitPerIndex=1, **more))
    lab.wait(1)
    fail(lab, index=1)
    lab.wait(15)
    (again,) = [p for p in active(lab) if index_of(p) == 1]
    assert again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    fail(lab, index=1)
    lab.wait(60)
    assert [index_of(p) for p in active(lab)] == [0, 2]
    assert lab.get(JOBS, "j")["status"]["failedIndexes"] == "1"
    assert "Failed" not in conditions(lab)
    end(lab, 2)
    assert conditions(lab)["Failed"] == "FailedIndexes"
    assert lab.get(JOBS, "j")["status"]["completedIndexes"] == "0,2"


def test_an_index_that_failed_does_not_slow_the_others_down(lab):
    more = {"completions": 4, "parallelism": 1, "completionMode": "Indexed"}
    lab.add(JOBS, job("j", backoffLimitPerIndex=5, **more))
    lab.wait(1)
    fail(lab, index=0)
    lab.wait(1)
    assert [index_of(p) for p in active(lab)] == [1]


def test_too_many_failed_indexes_end_the_job(lab):
    more = {"completions": 5, "parallelism": 5, "completionMode": "Indexed"}
    policy = {"rules": [rule("FailIndex", 7)]}
    more |= {"backoffLimitPerIndex": 9, "maxFailedIndexes": 1, "podFailurePolicy": policy}
    lab.add(JOBS, job("j", **more))
    lab.wait(1)
    fail(lab, 7, index=0)
    assert "Failed" not in conditions(lab)
    fail(lab, 7, index=3)
    assert conditions(lab)["Failed"] == "MaxFailedIndexesExceeded"
    assert lab.get(JOBS, "j")["status"]["failedIndexes"] == "0,3"


@pytest.mark.parametrize(
    ("rules", "met_after"),
    [
        ([{"succeededIndexes": "0,2"}], 3),
        ([{"succeededIndexes": "1-3", "succeededCount": 1}], 2),
        ([{"succeededIndexes": "4"}, {"succeededCount": 2}], 2),
    ],
)
def test_a_success_policy_ends_the_job_early(lab, rules, met_after):
    more = {"completions": 5, "parallelism": 5, "completionMode": "Indexed"}
    lab.add(JOBS, job("j", successPolicy={"rules": rules}, **more))
    lab.wait(1)
    bind(lab)
    for number in range(met_after):
        assert "Complete" not in conditions(lab)
        (name,) = [p["metadata"]["name"] for p in active(lab) if index_of(p) == number]
        lab.end_pod(name)
        lab.wait(0.1)
    assert conditions(lab) == {"SuccessCriteriaMet": "SuccessPolicy"}
    assert lab.get(JOBS, "j")["status"]["terminating"] == 5 - met_after
    end_deleted(lab)
    assert conditions(lab)["Complete"] == "SuccessPolicy"
    assert "failed" not in lab.get(JOBS, "j")["status"]
    said = lab.get(JOBS, "j")["status"]["conditions"][-1]["message"]
    assert said == f"Matched rules at index {len(rules) - 1}"
    assert active(lab) == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"backoffLimitPerIndex": 1}, "spec.backoffLimitPerIndex: Invalid value: 1: requires"),
        (
            {"podFailurePolicy": {"rules": [rule("FailIndex", 1)]}},
            "requires the backoffLimitPerIndex to be set",
        ),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore"}]}}, "specifying one of OnExitCodes"),
        ({"podFailurePolicy": {"rules": [rule("Stop", 1)]}}, 'Unsupported value: "Stop"'),
    ],
)
def test_a_job_whose_rules_cannot_hold_is_refused(lab, spec, why):
    with pytest.raises(ApiError, match=why):
        lab.add(JOBS, job("j", **spec))


def cron_job(name, schedule, **spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job("x")["spec"]}, **spec},
    }


def test_a_cron_job_starts_a_job_at_each_of_its_times(lab):
    lab.add(CRON_JOBS, cron_job("c", "*/10 * * * *"))
    lab.wait(25 * 60)
    names = lab.names(JOBS)
    assert len(names) == 2
    assert all((int(name.split("-")[1]) * 60) % 600 == 0 for name in names)
    assert len(lab.get(CRON_JOBS, "c")["status"]["active"]) == 2


@pytest.mark.parametrize(("policy", "running"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_overlapping_runs_are_allowed_forbidden_or_replaced(lab, policy, running):
    lab.add(CRON_JOBS, cron_job("c", "*/10 * * * *", concurrencyPolicy=policy))
    lab.wait(30 * 60 + 5)
    assert len(lab.names(JOBS)) == running


@pytest.mark.thorough
@pytest.mark.parametrize("last", ["0000-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_last_run_long_ago_neither_stops_a_cron_job_nor_counts_every_minute_since(lab, last):
    lab.add(CRON_JOBS, cron_job("c", "*/10 * * * *", suspend=True))
    lab.set_status(CRON_JOBS, "c", lastScheduleTime=last)
    lab.patch(CRON_JOBS, "c", {"spec": {"suspend": False}})
    lab.wait(5)
    assert len(lab.names(JOBS)) == 1
    reasons = {event["reason"] for event in lab.all(EVENTS)}
    assert {"TooManyMissedTimes", "SuccessfulCreate"} <= reasons


def test_only_some_finished_jobs_are_kept(lab):
    lab.add(CRON_JOBS, cron_job("c", "*/10 * * * *", successfulJobsHistoryLimit=2))
    for _ in range(5):
        lab.wait(600)
        end(lab, 9)
    lab.wait(60)
    assert len(lab.names(JOBS)) == 2


def test_a_suspended_cron_job_starts_nothing(lab):
    lab.add(CRON_JOBS, cron_job("c", "*/10 * * * *", suspend=True))
    lab.wait(3600)
    assert lab.names(JOBS) == []


def test_a_start_that_was_missed_for_too_long_is_left_out(lab):
    lab.add(CRON_JOBS, cron_job("c", "0 0 * * *", suspend=True, startingDeadlineSeconds=60))
    lab.wait(36 * 3600)
    lab.patch(CRON_JOBS, "c", {"spec": {"suspend": False}})
    lab.wait(60)
    assert lab.names(JOBS) == []
    assert [e for e in lab.all(EVENTS) if e["reason"] == "SuccessfulCreate"] == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"schedule": "1 2 3"},
            "spec.schedule: Invalid value: .*expected exactly 5 fields, found 3",
        ),
        ({"timeZone": "Moon/Tycho"}, "spec.timeZone: .*unknown time zone Moon/Tycho"),
    ],
)
def test_a_cron_job_without_a_time_is_refused(lab, spec, why):
    with pytest.raises(ApiError, match=why):
        lab.add(CRON_JOBS, cron_job("c", **{"schedule": "* * * * *", **spec}))


def test_a_cron_job_whose_day_never_comes_says_so(lab):
    lab.add(CRON_JOBS, cron_job("c", "59 23 31 2 *"))
    lab.wait(60)
    found = [event for event in lab.all(EVENTS) if event["reason"] == "InvalidSchedule"]
    assert [event["type"] for event in found] == ["Warning"]
    why = "time difference between two schedules is less than 1 second"
    assert found[0]["message"] == f"invalid schedule: 59 23 31 2 * : {why}"


@pytest.mark.parametrize(
    ("manager", "pods"), [("kubernetes.io/job-controller", 1), ("example.com/other", 0)]
)
def test_a_job_of_another_controller_is_left_alone(lab, manager, pods):
    lab.add(JOBS, job("j", managedBy=manager))
    lab.wait(5)
    assert len(lab.all(PODS)) == pods
    assert bool(lab.get(JOBS, "j").get("status")) == bool(pods)


def test_a_cron_job_says_that_an_active_job_is_gone(lab):
    lab.add(CRON_JOBS, cron_job("c", "* * * * *", concurrencyPolicy="Forbid"))
    lab.wait(61)
    (name,) = lab.names(JOBS)
    lab.delete(JOBS, name)
    lab.wait(5)
    assert not lab.get(CRON_JOBS, "c")["status"].get("active")
    (event,) = [event for event in lab.all(EVENTS) if event["reason"] == "MissingJob"]
    assert event["message"] == f"Active job went missing: {name}"

"""CronJobs: create a Job at each scheduled time.

Source: kube-controller-manager's cronjob controller (concurrency, missed starts, history).
"""

from copy import deepcopy
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.controllers.workloads import OwnedObjects, each, enqueue_owner, write_status
from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    status_of,
    uid_of,
)
from dralab.objects.workloads import job_end
from dralab.runtime.client import delete_only, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CRON_JOBS, JOBS
from dralab.values import cron
from dralab.values.json_types import JsonDict

MOST_MISSED: Final = 100
SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
# Upstream compares the next two times, which are both zero for 31 February.
NEVER: Final = "time difference between two schedules is less than 1 second"


class CronJobs:
    """Starts jobs on time and forgets old ones."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.cron_jobs = manager.cache(CRON_JOBS)
        self.owned = OwnedObjects(manager, JOBS, kind="CronJob", api_version="batch/v1")
        self.recorder = manager.recorder("cronjob-controller")
        self.queue = manager.queue("cronjobs", self.reconcile)
        self.cron_jobs.subscribe(each(self.queue.add))
        self.owned.cache.subscribe(enqueue_owner(self.owned, self.queue.add, self.cron_jobs))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Start the jobs that are due; return the next time."""
        cron_job = self.cron_jobs.get(key)
        if cron_job is None or is_deleting(cron_job):
            return None
        jobs = self.owned.owned_by(cron_job, adopt=False)
        cron_job = self._tell(cron_job, jobs)
        self._forget(cron_job, jobs)
        if cron_job["spec"].get("suspend"):
            return None
        spec = cron_job["spec"]
        try:
            schedule = cron.parse(spec["schedule"], spec.get("timeZone"))
        except cron.ScheduleError as error:
            self._event(cron_job, "UnparseableSchedule", f"unparseable schedule: {error}", bad=True)
            return None
        now = self.manager.engine.clock.now()
        due = self._due(cron_job, schedule, now)
        if due is not None:
            self._start(cron_job, jobs, due)
        upcoming = next(schedule.after(_moment(now)), None)
        if upcoming is None:
            if due is None:
                never = f"invalid schedule: {spec['schedule']} : {NEVER}"
                self._event(cron_job, "InvalidSchedule", never, bad=True)
            return None
        return int(upcoming.timestamp()) * SECOND - now

    def _due(
        self, cron_job: JsonDict, schedule: cron.Schedule | cron.IntervalSchedule, now: int
    ) -> datetime | None:
        """Return the latest missed time."""
        status, spec = status_of(cron_job), cron_job["spec"]
        since = from_rfc3339(
            status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"]
        )
        deadline = spec.get("startingDeadlineSeconds")
        earliest = since if deadline is None else max(since, now - deadline * SECOND)
        begin, end = _moment(max(earliest, 0)), _moment(now)
        due = takewhile(lambda moment: moment <= end, schedule.after(begin))
        if len(list(islice(due, MOST_MISSED + 1))) > MOST_MISSED:
            self._event(
                cron_job,
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease "
                ".spec.startingDeadlineSeconds or check clock skew",
                bad=True,
            )
        return schedule.latest(begin, end)

    def _start(self, cron_job: JsonDict, jobs: list[JsonDict], due: datetime) -> None:
        key, spec = key_of(cron_job), cron_job["spec"]
        name = f"{key.name}-{int(due.timestamp()) // 60}"
        if any(job["metadata"]["name"] == name for job in jobs):
            return
        active = [job for job in jobs if not _is_over(job)]
        policy = spec.get("concurrencyPolicy", "Allow")
        if active and policy == "Forbid":
            self._event(
                cron_job,
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is "
                "Forbid",
            )
            return
        if policy == "Replace":
            for job in active:
                self._delete(cron_job, job)
        template = spec["jobTemplate"]
        body: JsonDict = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "labels": dict(labels_of(template)),
                "annotations": {
                    **annotations_of(template),
                    SCHEDULED: rfc3339(int(due.timestamp()) * SECOND),
                },
                "ownerReferences": [self.owned.reference(cron_job)],
            },
            "spec": deepcopy(template["spec"]),
        }
        try:
            self.owned.cache.learn(self.client.create(JOBS, body, key.namespace))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return
            self._event(cron_job, "FailedCreate", f"Error creating job: {error.message}", bad=True)
            raise
        self._event(cron_job, "SuccessfulCreate", f"Created job {name}")
        self._tell(
            cron_job,
            self.owned.owned_by(cron_job, adopt=False),
            scheduled=rfc3339(int(due.timestamp()) * SECOND),
        )

    def _tell(
        self, cron_job: JsonDict, jobs: list[JsonDict], scheduled: str | None = None
    ) -> JsonDict:
        before = status_of(cron_job)
        active = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job["metadata"]["name"],
                "namespace": job["metadata"]["namespace"],
                "uid": uid_of(job),
                "resourceVersion": job["metadata"].get("resourceVersion", ""),
            }
            for job in jobs
            if not _is_over(job)
        ]
        held = {item["uid"]: item for item in before.get("active") or ()}
        active = [held.get(item["uid"], item) for item in active]
        for missing in held.keys() - {uid_of(job) for job in jobs}:
            item = held[missing]
            if find(self.client, JOBS, item["name"], item["namespace"]) is not None:
                active.append(item)  # the cache may not have it yet
            else:
                name = item["name"]
                self._event(cron_job, "MissingJob", f"Active job went missing: {name}")
        for job in jobs:
            if _is_over(job) and uid_of(job) in held:
                how = "Complete" if _is_over(job) == "Complete" else "Failed"
                name = job["metadata"]["name"]
                self._event(
                    cron_job, "SawCompletedJob", f"Saw completed job: {name}, condition: {how}"
                )
        done = [
            job["status"]["completionTime"]
            for job in jobs
            if _is_over(job) == "Complete" and "completionTime" in job["status"]
        ]
        status: dict[str, Any] = {"active": active or None}
        if scheduled is not None:
            status["lastScheduleTime"] = scheduled
        latest = max([*done, before.get("lastSuccessfulTime") or ""])
        if latest:
            status["lastSuccessfulTime"] = latest
        return write_status(self.manager, self.cron_jobs, cron_job, status)

    def _forget(self, cron_job: JsonDict, jobs: list[JsonDict]) -> None:
        spec = cron_job["spec"]
        for how, limit in (
            ("Complete", spec.get("successfulJobsHistoryLimit", 3)),
            ("Failed", spec.get("failedJobsHistoryLimit", 1)),
        ):
            over = sorted(
                (job for job in jobs if _is_over(job) == how and not is_deleting(job)),
                key=lambda job: (job["metadata"].get("creationTimestamp", ""), key_of(job)),
            )
            for job in over[: max(0, len(over) - limit)]:
                self._delete(cron_job, job)

    def _delete(self, cron_job: JsonDict, job: JsonDict) -> None:
        if delete_only(self.client, JOBS, job, propagationPolicy="Background"):
            self._event(cron_job, "SuccessfulDelete", f"Deleted job {key_of(job).name}")

    def _event(self, cron_job: JsonDict, reason: str, message: str, *, bad: bool = False) -> None:
        self.recorder.event(
            cron_job,
            "CronJob",
            reason,
            message,
            type="Warning" if bad else "Normal",
            api_version="batch/v1",
        )


def _is_over(job: JsonDict) -> str:
    """Return how a job ended; empty while it has not."""
    ended = job_end(job)
    return "" if ended is None else ended["type"]


def _moment(when: int) -> datetime:
    return datetime.fromtimestamp(when // SECOND, UTC)

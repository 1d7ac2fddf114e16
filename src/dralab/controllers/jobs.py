"""Jobs: pods until enough of them have succeeded.

Source: kube-controller-manager's job controller: parallelism, completions, Indexed completion,
back-off, deadlines, suspension, TTL, and pod failure counted once through the tracking finalizer.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dralab.api.status import ApiError, ignoring
from dralab.apiserver.access.users import service_account_name
from dralab.controllers.job_failures import (
    FAILURES,
    INDEX,
    failed_indexes,
    failures,
    has_failed,
    index_of,
    indexes,
    judged,
    ranges,
)
from dralab.controllers.job_groups import JobGroups, joined
from dralab.controllers.job_verdicts import JobVerdict, begun_verdict, verdict_of
from dralab.controllers.workloads import (
    BURST,
    OwnedObjects,
    PodControl,
    deletion_rank,
    each,
    enqueue_owner,
    is_ending,
    pod_from_template,
    write_status,
)
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.conditions import condition_of, with_condition
from dralab.objects.metadata import (
    NamespacedName,
    finalizers_of,
    is_deleting,
    key_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished, is_ready
from dralab.objects.workloads import job_end
from dralab.runtime.client import amend, delete_only, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import JOBS, PODS
from dralab.values.json_types import JsonDict

CONTROLLER: Final = "kubernetes.io/job-controller"
CLEANER: Final = "ttl-after-finished-controller"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
FIRST_BACKOFF: Final = 10 * SECOND
LONGEST_BACKOFF: Final = 600 * SECOND


class Jobs:
    """Starts pods, counts how they end, and ends the job."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        # A Job's own controller may not delete it: that is for another one, with its own role.
        self.cleaner = manager.acting_as(service_account_name("kube-system", CLEANER)).client
        self.jobs = manager.cache(JOBS)
        self.owned = OwnedObjects(manager, PODS, kind="Job", api_version="batch/v1")
        self.recorder = manager.recorder("job-controller")
        self.control = PodControl(manager, self.recorder, kind="Job", api_version="batch/v1")
        self.groups = JobGroups(manager.client, self.control)
        self.queue = manager.queue("jobs", self.reconcile)
        # Pods that were counted and let go: the watch may tell of that a little later.
        self._counted: set[str] = set()
        self.jobs.subscribe(each(self.queue.add))
        self.owned.cache.subscribe(enqueue_owner(self.owned, self.queue.add, self.jobs))
        self.owned.cache.subscribe(self._pod)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if old is not None and (new is None or not _is_tracked(new)):
            self._counted.discard(uid_of(old))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Take a job one step further."""
        job = self.jobs.get(key)
        if job is None:
            self._free_orphans(key)
            return None
        if job["spec"].get("managedBy") not in {None, CONTROLLER}:
            return None  # another controller's, down to the finalizers of its pods
        pods = self.owned.owned_by(job)
        if is_deleting(job):
            for pod in pods:
                self._untrack(pod)
            return None
        active = [pod for pod in pods if not is_finished(pod) and not is_deleting(pod)]
        if job_end(job) is not None:
            for pod in active:  # it was made by a request that came late
                self._remove(job, pod)
            for pod in pods:
                self._untrack(pod)
            return self._forget_later(job)
        begun = begun_verdict(job)
        job = self._count(job, pods, begun)
        verdict = begun or verdict_of(job, pods, self._deadline(job))
        again: int | None = None
        failure: ApiError | None = None
        if verdict is not None:
            for pod in active:
                self.control.delete(job, pod)
            return self._end(job, verdict, pods)
        group = self.groups.of(job, pods)
        if job["spec"].get("suspend"):
            for pod in active:
                self._remove(job, pod)
            active = []
        else:
            try:
                active, again = self._scale(job, active, pods, group)
            except ApiError as error:
                failure = error
        self._tell(job, active, sum(map(is_ending, pods)))
        if failure is not None:
            raise failure
        deadline = self._deadline(job)
        waits = [wait for wait in (again, deadline) if wait is not None]
        return min(waits, default=None)

    # --- counting

    def _count(self, job: JsonDict, pods: list[JsonDict], verdict: JobVerdict | None) -> JsonDict:
        """Count finished pods once: record them in the status, then remove their finalizers.

        A verdict that stands decides for the pods that are deleted because of it: those of a job
        that fails have failed, those of a job that succeeds do not count.
        """
        status = status_of(job)
        noted = status.get("uncountedTerminatedPods") or {}
        uncounted = {name: list(noted.get(name) or ()) for name in ("succeeded", "failed")}
        tracked = {
            uid_of(pod): pod
            for pod in pods
            if _is_tracked(pod) and uid_of(pod) not in self._counted
        }
        changed = False
        for uid, pod in sorted(tracked.items()):
            if any(uid in uids for uids in uncounted.values()):
                continue
            if status_of(pod).get("phase") == "Succeeded":
                uncounted["succeeded"].append(uid)
            elif not (has_failed(job, pod) or (verdict is not None and verdict.failed)):
                continue
            elif not _counts(job, pod, verdict):
                self._untrack(pod)
                self._counted.add(uid)
                continue
            else:
                uncounted["failed"].append(uid)
            changed = True
        completed = indexes(status.get("completedIndexes", ""))
        completed |= {
            index
            for uid in uncounted["succeeded"]
            if uid in tracked and (index := index_of(tracked[uid])) is not None
        }
        if changed:
            job = write_status(
                self.manager,
                self.jobs,
                job,
                {
                    "uncountedTerminatedPods": {k: v for k, v in uncounted.items() if v},
                    "completedIndexes": ranges(completed) or None,
                    **self._given_up(job, pods),
                },
            )
        if not any(uncounted.values()):
            return job
        for uids in uncounted.values():
            for uid in uids:
                if uid in tracked:
                    self._untrack(tracked[uid])
        self._counted |= {uid for uid in tracked if any(uid in each for each in uncounted.values())}
        status = status_of(job)
        succeeded = (status.get("succeeded") or 0) + len(uncounted["succeeded"])
        if job["spec"].get("completionMode") == "Indexed":
            succeeded = len(completed)
        return write_status(
            self.manager,
            self.jobs,
            job,
            {
                "uncountedTerminatedPods": {},
                "succeeded": succeeded or None,
                "failed": (status.get("failed") or 0) + len(uncounted["failed"]) or None,
            },
        )

    @staticmethod
    def _given_up(job: JsonDict, pods: list[JsonDict]) -> dict[str, Any]:
        """Return the indexes that have failed, for jobs that count failures by index."""
        if job["spec"].get("backoffLimitPerIndex") is None:
            return {}
        known = indexes(status_of(job).get("failedIndexes") or "")
        return {"failedIndexes": ranges(known | failed_indexes(job, pods))}

    def _remove(self, job: JsonDict, pod: JsonDict) -> None:
        """Delete a surplus pod: first its finalizer, so that it does not count as failed.

        Source: the job controller's `deleteJobPods`.
        """
        self._untrack(pod)
        self.control.delete(job, pod)

    def _untrack(self, pod: JsonDict) -> None:
        if not _is_tracked(pod):
            return
        with ignoring("NotFound"):
            amended = amend(self.client, PODS, pod, lambda latest: drop_finalizer(latest, TRACKING))
            if not is_deleting(amended):
                self.owned.cache.learn(amended)

    def _free_orphans(self, key: NamespacedName) -> None:
        for pod in self.owned.cache.namespace(key.namespace):
            if self.owned.owner_key(pod) == key and _is_tracked(pod):
                self._untrack(pod)

    # --- the end

    def _end(self, job: JsonDict, verdict: JobVerdict, pods: list[JsonDict]) -> int | None:
        """Announce a job's end, and finish it once none of its pods runs any more.

        Source: KEP-3939 and KEP-3998, `FailureTarget` and `SuccessCriteriaMet`.
        """
        now = self.manager.now()
        left = sum(not is_finished(pod) for pod in pods)
        status = status_of(job)
        announced = begun_verdict(job) is not None
        uncounted = any((status.get("uncountedTerminatedPods") or {}).values())
        over = announced and not left and not uncounted
        condition = {
            "type": verdict.type if over else verdict.announcement,
            "status": "True",
            "reason": verdict.reason,
            "message": verdict.message,
            "lastProbeTime": now,
        }
        written: dict[str, Any] = {"active": None, "ready": 0, "terminating": left}
        if over or not announced:
            written["conditions"] = with_condition(
                list(status.get("conditions") or ()), condition, now=now
            )
        if over and not verdict.failed:
            written["completionTime"] = now
        write_status(self.manager, self.jobs, job, written)
        if not over:
            return None if announced else 0
        if verdict.failed:
            self.control.say(job, verdict.reason, verdict.message, bad=True)
        else:
            self.control.say(job, "Completed", "Job completed")
        return 0

    def _forget_later(self, job: JsonDict) -> int | None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        ended = job_end(job)
        end = None if ended is None else ended["lastTransitionTime"]
        if ttl is None or end is None:
            return None
        left: int = from_rfc3339(end) + ttl * SECOND - self.manager.engine.clock.now()
        if left > 0:
            return left
        delete_only(self.cleaner, JOBS, job, propagationPolicy="Foreground")
        return None

    def _deadline(self, job: JsonDict) -> int | None:
        seconds = job["spec"].get("activeDeadlineSeconds")
        started = status_of(job).get("startTime")
        if seconds is None or not started or job["spec"].get("suspend"):
            return None
        return int(from_rfc3339(started) + seconds * SECOND - self.manager.engine.clock.now())

    # --- pods

    def _scale(
        self, job: JsonDict, active: list[JsonDict], pods: list[JsonDict], group: JsonDict | None
    ) -> tuple[list[JsonDict], int | None]:
        spec, status = job["spec"], status_of(job)
        parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
        succeeded = status.get("succeeded") or 0
        if completions is None:
            wanted = len(active) if succeeded else parallelism
        else:
            given_up = indexes(status.get("failedIndexes") or "")
            wanted = min(parallelism, completions - succeeded - len(given_up))
        if len(active) > wanted:
            going = sorted(active, key=deletion_rank)[: len(active) - wanted]
            for pod in going:
                self._remove(job, pod)
            return [pod for pod in active if pod not in going], None
        missing = min(wanted - len(active), BURST)
        if missing <= 0:
            return active, None
        # A pod that is still ending holds its place (podReplacementPolicy Failed), its index too.
        if spec.get("podReplacementPolicy") == "Failed":
            missing -= sum(map(is_ending, pods))
        if spec.get("backoffLimitPerIndex") is not None:
            return self._replace(job, active, pods, max(0, missing), group)
        failed = [pod for pod in pods if status_of(pod).get("phase") == "Failed"]
        wait = self._backoff(failed, status.get("failed") or 0)
        if wait > 0:
            return active, wait
        wanted_indexes: Iterable[int | None] = [None] * max(0, missing)
        if spec.get("completionMode") == "Indexed":
            wanted_indexes = self._free_indexes(job, pods)[: max(0, missing)]
        made = [self.control.create(job, self._body(job, each, group)) for each in wanted_indexes]
        return [*active, *made], None

    def _replace(
        self,
        job: JsonDict,
        active: list[JsonDict],
        pods: list[JsonDict],
        missing: int,
        group: JsonDict | None,
    ) -> tuple[list[JsonDict], int | None]:
        """Create missing pods of indexes that have not failed; each has its own back-off.

        The pod carries how often its index has failed, so that this outlives the failed pods.
        """
        counts = failures(job, pods)
        made: list[JsonDict] = []
        again: int | None = None
        for index in self._free_indexes(job, pods):
            if len(made) == missing:
                break
            count = counts.get(index, 0)
            mine = [pod for pod in pods if index_of(pod) == index and has_failed(job, pod)]
            wait = self._backoff(mine, count)
            if wait > 0:
                again = wait if again is None else min(again, wait)
                continue
            body = self._body(job, index, group)
            body["metadata"]["annotations"][FAILURES] = str(count)
            made.append(self.control.create(job, body))
        return [*active, *made], again

    def _free_indexes(self, job: JsonDict, pods: list[JsonDict]) -> list[int]:
        """Return the indexes that have no pod, are not done, and are not given up."""
        status = status_of(job)
        busy = {index_of(pod) for pod in pods if not is_finished(pod)}
        busy |= indexes(status.get("completedIndexes", ""))
        busy |= indexes(status.get("failedIndexes") or "")
        return [n for n in range(job["spec"].get("completions") or 0) if n not in busy]

    def _backoff(self, failed: list[JsonDict], count: int) -> int:
        """Return how long failed pods wait for a successor: 10 s, doubled, at most 10 min."""
        if not failed or not count:
            return 0
        latest = max(_ended(pod) for pod in failed)
        delay = min(FIRST_BACKOFF << min(count - 1, 20), LONGEST_BACKOFF)
        return latest + delay - self.manager.engine.clock.now()

    def _body(self, job: JsonDict, index: int | None, group: JsonDict | None) -> JsonDict:
        key = key_of(job)
        prefix = f"{key.name}-" if index is None else f"{key.name}-{index}-"
        body = pod_from_template(
            job["spec"]["template"],
            reference=self.owned.reference(job),
            namespace=key.namespace,
            generateName=prefix,
        )
        metadata = body["metadata"]
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), TRACKING]
        if index is not None:
            metadata.setdefault("annotations", {})[INDEX] = str(index)
            metadata.setdefault("labels", {})[INDEX] = str(index)
            body["spec"].setdefault("hostname", f"{key.name}-{index}")
            source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
            entry = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
            spec = body["spec"]
            for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
                container["env"] = [*(container.get("env") or ()), dict(entry)]
        return body if group is None else joined(body, group)

    # --- status

    def _tell(self, job: JsonDict, active: list[JsonDict], ending: int) -> None:
        now = self.manager.now()
        status = status_of(job)
        suspended = bool(job["spec"].get("suspend"))
        conditions = list(status.get("conditions") or ())
        known = condition_of(job, "Suspended")
        was = known is not None and known["status"] == "True"
        if suspended or was:
            condition = {
                "type": "Suspended",
                "status": "True" if suspended else "False",
                "reason": "JobSuspended" if suspended else "JobResumed",
                "message": "Job suspended" if suspended else "Job resumed",
            }
            conditions = with_condition(conditions, condition, now=now)
        written: dict[str, Any] = {
            "active": len(active) or None,
            "ready": sum(is_ready(pod) for pod in active),
            "terminating": ending,
            "uncountedTerminatedPods": status.get("uncountedTerminatedPods") or {},
        }
        if conditions:
            written["conditions"] = conditions
        if suspended:
            written["startTime"] = None
        elif not status.get("startTime"):
            written["startTime"] = now
        write_status(self.manager, self.jobs, job, written)
        if suspended != was:
            reason = "Suspended" if suspended else "Resumed"
            self.control.say(job, reason, f"Job {reason.lower()}")


def _counts(job: JsonDict, pod: JsonDict, verdict: JobVerdict | None) -> bool:
    """Whether a failure counts: not if a success caused it, or a rule ignores it."""
    if verdict is not None and not verdict.failed and is_deleting(pod):
        return False
    return judged(job, pod).action != "Ignore"


def _is_tracked(pod: JsonDict) -> bool:
    return TRACKING in finalizers_of(pod)


def _ended(pod: JsonDict) -> int:
    times = [
        state["terminated"]["finishedAt"]
        for container in status_of(pod).get("containerStatuses") or ()
        if (state := container.get("state") or {}).get("terminated", {}).get("finishedAt")
    ]
    since: Mapping[str, Any] = condition_of(pod, "Ready") or {}
    text = max(times, default=since.get("lastTransitionTime"))
    return from_rfc3339(text or pod["metadata"]["creationTimestamp"])

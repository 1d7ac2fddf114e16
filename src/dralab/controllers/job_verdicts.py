"""Whether a job is over, and why: the conditions that announce and then state its end.

Sources: kube-controller-manager's job controller (`syncJob`); KEP-3998 (successPolicy), KEP-3939
(terminating pods). What happens to its pods then is decided in `jobs`.
"""

from typing import Final, NamedTuple

from dralab.controllers.job_failures import end_of_indexes, has_failed, indexes, judged, success
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict

ANNOUNCEMENTS: Final = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}
REACHED: Final = "Reached expected number of succeeded pods"


class JobVerdict(NamedTuple):
    """How a job ends: the type of its last condition, Complete or Failed, and the reason."""

    type: str
    reason: str
    message: str

    @property
    def failed(self) -> bool:
        """Whether the job fails."""
        return self.type == "Failed"

    @property
    def announcement(self) -> str:
        """The type of the condition that is true from now on, while pods still end."""
        return ANNOUNCEMENTS[self.type]


def begun_verdict(job: JsonDict) -> JobVerdict | None:
    """Return the announced verdict, which is final."""
    for type_, announcement in ANNOUNCEMENTS.items():
        condition = condition_of(job, announcement)
        if condition is not None and condition["status"] == "True":
            return JobVerdict(type_, condition.get("reason", ""), condition.get("message", ""))
    return None


def verdict_of(job: JsonDict, pods: list[JsonDict], left: int | None) -> JobVerdict | None:
    """Return the verdict where the job is over now; `left` is the time to its deadline, in ns."""
    spec, status = job["spec"], status_of(job)
    failed, succeeded = status.get("failed") or 0, status.get("succeeded") or 0
    if spec.get("podFailurePolicy"):
        for pod in pods:
            if has_failed(job, pod) and (found := judged(job, pod)).action == "FailJob":
                return JobVerdict("Failed", "PodFailurePolicy", found.message)
    limit = spec.get("backoffLimit", 6)
    if failed > limit or _restarts_too_often(job, pods, limit):
        message = "Job has reached the specified backoff limit"
        return JobVerdict("Failed", "BackoffLimitExceeded", message)
    if left is not None and left <= 0:
        message = "Job was active longer than specified deadline"
        return JobVerdict("Failed", "DeadlineExceeded", message)
    ended = end_of_indexes(job, len(indexes(status.get("failedIndexes") or "")))
    if ended is not None:
        return JobVerdict("Failed", *ended)
    met = success(job, indexes(status.get("completedIndexes", "")))
    if met:
        return JobVerdict("Complete", "SuccessPolicy", met)
    completions = spec.get("completions")
    if completions is None:
        whole = succeeded and not status.get("active") and all(map(is_finished, pods))
    else:
        whole = succeeded >= completions
    return JobVerdict("Complete", "CompletionsReached", REACHED) if whole else None


def _restarts_too_often(job: JsonDict, pods: list[JsonDict], limit: int) -> bool:
    """Return whether containers that are restarted in place have failed often enough.

    As pastBackoffLimitOnFailure: what restarts in a pod that continues counts as failing does.
    """
    if spec_of(job["spec"]["template"]).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        status.get("restartCount") or 0
        for pod in pods
        if status_of(pod).get("phase") in {"Pending", "Running"}
        for name in ("initContainerStatuses", "containerStatuses")
        for status in pod["status"].get(name) or ()
    )
    return restarts >= max(limit, 1)

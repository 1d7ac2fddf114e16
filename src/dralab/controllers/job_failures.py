"""Failed pods of a job: its failure policy, and the failures of each index.

Sources: kube-controller-manager's job controller (`pod_failure_policy.go`, `indexed_job_utils.go`);
KEP-3329 (podFailurePolicy), KEP-3850 (backoffLimitPerIndex).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from dralab.objects.conditions import conditions_of
from dralab.objects.metadata import annotations_of, is_deleting, key_of, status_of
from dralab.values.json_types import JsonDict

INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
Action = Literal["FailJob", "FailIndex", "Ignore", "Count"]


class MatchedRule(NamedTuple):
    """The action of the first rule that matches a failed pod, and why."""

    action: Action
    message: str = ""


COUNTED: Final = MatchedRule("Count")


def judged(job: JsonDict, pod: JsonDict) -> MatchedRule:
    """Return the action of a job's failure policy for a failed pod."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    for number, rule in enumerate(rules):
        why = ""
        if rule.get("onExitCodes"):
            why = _by_exit_code(rule["onExitCodes"], pod)
        elif rule.get("onPodConditions"):
            why = _by_condition(rule["onPodConditions"], pod)
        if why:
            action: Action = rule["action"]
            return MatchedRule(action, f"{why} matching {action} rule at index {number}")
    return COUNTED


def has_failed(job: JsonDict, pod: JsonDict) -> bool:
    """Return whether a pod counts as failed: with `podReplacementPolicy: Failed` once it ended."""
    phase = status_of(pod).get("phase")
    if phase == "Failed":
        return True
    going = is_deleting(pod) and phase != "Succeeded"
    return going and job["spec"].get("podReplacementPolicy") != "Failed"


def index_of(pod: JsonDict) -> int | None:
    """Return a pod's completion index."""
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def failures(job: JsonDict, pods: Iterable[JsonDict]) -> dict[int, int]:
    """Return, for each index with failed pods, how often it failed in a row."""
    found: dict[int, int] = {}
    for pod in pods:
        index = index_of(pod)
        if index is None:
            continue
        before = annotations_of(pod).get(FAILURES, "0")
        count = int(before) if before.isdecimal() else 0
        if has_failed(job, pod) and judged(job, pod).action != "Ignore":
            count += 1
        if count:
            found[index] = max(found.get(index, 0), count)
    return found


def failed_indexes(job: JsonDict, pods: Iterable[JsonDict]) -> set[int]:
    """Return the indexes that are given up: they failed too often, or a rule says so."""
    limit = job["spec"].get("backoffLimitPerIndex")
    if limit is None:
        return set()
    all_of_them = list(pods)
    found = {index for index, count in failures(job, all_of_them).items() if count > limit}
    for pod in all_of_them:
        index = index_of(pod)
        if index is not None and has_failed(job, pod) and judged(job, pod).action == "FailIndex":
            found.add(index)
    return found


def end_of_indexes(job: JsonDict, failed: int) -> tuple[str, str] | None:
    """Return (reason, message) where a job fails for its indexes that failed."""
    spec, status = job["spec"], status_of(job)
    if not failed:
        return None
    most = spec.get("maxFailedIndexes")
    if most is not None and failed > most:
        said = "Job has exceeded the specified maximal number of failed indexes"
        return "MaxFailedIndexesExceeded", said
    if (status.get("succeeded") or 0) + failed >= (spec.get("completions") or 0):
        return "FailedIndexes", "Job has failed indexes"
    return None


def success(job: JsonDict, done: set[int]) -> str:
    """Return the message where a job's success policy is met by the indexes that are done."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        wanted = indexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        hit = done if wanted is None else done & wanted
        needed = rule.get("succeededCount")
        if needed is None:
            needed = len(wanted or ())
        if needed and len(hit) >= needed:
            return f"Matched rules at index {number}"
    return ""


def indexes(text: str) -> set[int]:
    """Return the numbers of a text such as `0-2,5`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def ranges(numbers: set[int]) -> str:
    """Return numbers as a text: two neighbours are a list, three a range (as upstream)."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    texts = []
    for part in parts:
        if len(part) == 1:
            texts.append(str(part[0]))
        elif part[1] == part[0] + 1:
            texts.append(f"{part[0]},{part[1]}")
        else:
            texts.append(f"{part[0]}-{part[1]}")
    return ",".join(texts)


def _by_exit_code(rule: Mapping[str, Any], pod: JsonDict) -> str:
    status = status_of(pod)
    named = rule.get("containerName")
    for container in (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ):
        ended = (container.get("state") or {}).get("terminated")
        if ended is None or named not in {None, container["name"]}:
            continue
        code = ended.get("exitCode") or 0
        listed = code in (rule.get("values") or ())
        # Success is never a failure, whatever a rule says about all other codes.
        if code and listed == (rule["operator"] == "In"):
            where = f"Container {container['name']} for pod {key_of(pod)}"
            return f"{where} failed with exit code {code}"
    return ""


def _by_condition(patterns: Iterable[Mapping[str, Any]], pod: JsonDict) -> str:
    held = {(condition["type"], condition["status"]) for condition in conditions_of(pod)}
    for pattern in patterns:
        if (pattern["type"], pattern.get("status") or "True") in held:
            return f"Pod {key_of(pod)} has condition {pattern['type']}"
    return ""

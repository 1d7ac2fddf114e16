"""Quotas of queues: what the pods of each hold together, and whether more may come."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dralab.simulation.lifecycle.model import Pod, Quota


class Quotas:
    """What the pods of every queue with a quota hold.

    >>> from dralab.simulation.workloads.openb import PodRequest
    >>> quotas = Quotas({"a": Quota(cpu=3000)})
    >>> pod = Pod(name="p", queue="a", request=PodRequest(2000, 0, 0, ""))
    >>> quotas.allows([pod]), quotas.allows([pod, pod])
    (True, False)
    >>> quotas.count_held(pod, 1)
    >>> quotas.allows([pod])
    False
    """

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self.quotas = quotas
        self._held: dict[str, Counter[str]] = {queue: Counter() for queue in quotas}

    def has_quota(self, pod: Pod) -> bool:
        """Whether a pod is in a queue with a quota."""
        return pod.queue in self.quotas

    def allows(self, pods: Sequence[Pod]) -> bool:
        """Whether pods of one queue may hold what they ask for, all of them."""
        quota = self.quotas.get(pods[0].queue)
        if quota is None:
            return True
        held = self._held[pods[0].queue]
        wanted = {
            "cpu": (quota.cpu, sum(pod.request.cpu for pod in pods)),
            "gpu": (quota.gpu_milli, sum(pod.request.demand for pod in pods)),
            "pods": (quota.pods, len(pods)),
        }
        return all(
            limit is None or held[name] + more <= limit for name, (limit, more) in wanted.items()
        )

    def count_held(self, pod: Pod, sign: int) -> None:
        """Count what a pod takes (1) or gives back (-1)."""
        if pod.queue in self._held:
            self._held[pod.queue].update(
                cpu=sign * pod.request.cpu, gpu=sign * pod.request.demand, pods=sign
            )

    @staticmethod
    def refusal(queue: str) -> str:
        """Return the message about a pod that exceeds the quota."""
        return f"the quota of queue {queue!r} is used up"

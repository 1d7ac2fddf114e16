"""The probes of a pod's containers: scheduling and results.

How one probe asks is in `probing`.
"""

from collections.abc import Sequence
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.node.container_runs import ProbeRecord, RunningContainer
from dralab.node.node_context import NodeContext
from dralab.node.probing import probe, with_port
from dralab.node.termination import end
from dralab.values.json_types import JsonDict, JsonObject

PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def records(container: JsonObject, now: int) -> dict[str, ProbeRecord]:
    """Return the probes of a container that starts now, by their kind."""
    return {
        kind: ProbeRecord(
            with_port(container, kind),
            now + container[kind].get("initialDelaySeconds", 0) * SECOND,
            kind=kind,
        )
        for kind in PROBES
        if container.get(kind)
    }


class PodProbes:
    """Runs the probes of one pod."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node

    def look(
        self, pod: JsonDict, containers: Sequence[RunningContainer], grace: float
    ) -> list[int]:
        """Run the probes that are due; return in how many nanoseconds the next ones are.

        A container that fails its liveness or startup probe has `grace` seconds to end. One that is
        being stopped is still asked whether it is ready, if it is real (kubelet, prober.doProbe):
        a Service may lead to it until it is gone.
        """
        delays, now = [], self.node.clock.now()
        for each in containers:
            for probing in list(each.probes.values()):
                if each.container is None or each.starting:
                    break
                if each.stopping and not _outlasts(each, probing):
                    continue
                if probing.kind != "startupProbe" and not each.has_started:
                    continue
                if probing.kind == "startupProbe" and probing.good:
                    continue
                if probing.next <= now and getattr(each.container, "real", False):
                    self._ask(pod, each, probing, grace)
                    continue
                if probing.next <= now:
                    problem = probe(each.container, probing.spec)
                    if self._answered(pod, each, probing, problem, grace):
                        break
                delays.append(max(0, probing.next - now))
        return delays

    def _ask(
        self, pod: JsonDict, each: RunningContainer, probing: ProbeRecord, grace: float
    ) -> None:
        """Run a probe that takes real time, in a thread."""
        container = each.container
        if probing.asked or container is None:
            return
        probing.asked = True

        def answered(found: str | Exception | None) -> None:
            probing.asked = False
            if each.container is not container:
                return
            if each.stopping and not _outlasts(each, probing):
                return
            problem = str(found) if isinstance(found, Exception) else found
            self._answered(pod, each, probing, problem, grace)
            self.node.wake(pod)

        self.node.offload(lambda: probe(container, probing.spec), answered)

    def _answered(
        self,
        pod: JsonDict,
        each: RunningContainer,
        probing: ProbeRecord,
        problem: str | None,
        grace: float,
    ) -> bool:
        """Handle a probe's answer; return whether the container is ended for it."""
        failed = probing.take_answer(success=problem is None, now=self.node.clock.now())
        recorder = self.node.recorder
        if problem is not None and probing.failures <= probing.spec.get("failureThreshold", 3):
            word = probing.kind.removesuffix("Probe").capitalize()
            said = f"{word} probe failed: {problem}"
            recorder.event(pod, "Pod", "Unhealthy", said, type="Warning")
        if not failed or probing.kind == "readinessProbe":
            return False
        word = "startup" if probing.kind == "startupProbe" else "liveness"
        said = f"Container {each.name} failed {word} probe, will be restarted"
        recorder.event(pod, "Pod", "Killing", said)
        own = probing.spec.get("terminationGracePeriodSeconds")
        end(self.node, pod, each, grace if own is None else float(own))
        return True


def _outlasts(each: RunningContainer, probing: ProbeRecord) -> bool:
    """Return whether a probe continues while its container is being stopped."""
    return probing.kind == "readinessProbe" and getattr(each.container, "real", False)

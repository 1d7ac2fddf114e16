"""A scenario on a simulated cluster: the parts that run live, on the same heap of events.

GPUs are devices of a driver, and a pod that wants some brings a claim for them; so what decides is
the scheduler and the allocator of `dralab up`, to the byte. A part of one GPU is a consumable
capacity of a device that several claims may share.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.kernel.events import BEGINNING, ENDING
from dralab.parts.simulated import SimulatedCluster
from dralab.runtime.client import Object
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from dralab.simulation.errors import InputError
from dralab.simulation.outside import objects
from dralab.simulation.pods import gpu_claims
from dralab.simulation.pods.model import Pod
from dralab.simulation.results import Result, Sample, Task
from dralab.simulation.scenarios.scenario import Scenario
from dralab.simulation.workloads.openb import WHOLE_GPU

NAME: Final = "dralab"
# Nothing was bound for so long, and nothing runs or is to come: it will never be.
PATIENCE: Final = 600 * SECOND


class _Seen:
    """What became of a pod."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.state = "Pending"
        self.node = ""
        self.started: int | None = None
        self.ended: int | None = None
        self.reason = ""


class InsideRun:
    """One run; `go` runs it to the end."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = SimulatedCluster(seed=scenario.seed)
        self.nodes = {node.name: node for node in scenario.fleet.as_nodes()}
        self.pods = {pod.key: _Seen(pod) for pod in scenario.pods()}
        self.samples: list[Sample] = []
        self._prepare()
        # Controllers have seen the nodes; the run begins now.
        self.cluster.settle()
        self.begin = self.cluster.now
        self._watch = self.cluster.client.watch(
            PODS, revision=self.cluster.client.list(PODS).revision
        )
        self._to_come = 0
        self._waiting = self._running = self._cpu = self._gpu = self._over = 0
        self._last = self.begin
        for seen in self.pods.values():
            self._to_come += 1
            self.cluster.engine.at(
                self.begin + seen.pod.arrives, partial(self._arrive, seen), priority=BEGINNING
            )

    def _prepare(self) -> None:
        client = self.cluster.client
        if any(node.gpus for node in self.nodes.values()):
            client.create(CLASSES, gpu_claims.device_class())
        for node in self.nodes.values():
            body = objects.node(node, self.cluster.now)
            # GPUs are devices here, not a number.
            for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
                amounts.pop(objects.GPU, None)
            client.create(NODES, body)
            if node.gpus:
                client.create(SLICES, gpu_claims.slice_of(node))

    def go(
        self,
        progress: Callable[[int, int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result:
        """Let everything happen; return what became of the pods."""
        engine, until = self.cluster.engine, self.scenario.circumstances.until
        steps, complete = 0, True
        while (when := engine.events.next_time()) is not None:
            if until is not None and when > self.begin + until:
                break
            if not self._to_come and not self._running and when > self._last + PATIENCE:
                break
            engine.step()
            self._look()
            steps += 1
            if steps % 256 == 0:
                if progress is not None:
                    progress(when - self.begin, self._over, len(self.pods))
                if stop is not None and stop():
                    complete = False
                    break
            if self._over == len(self.pods):
                break
        return self._result(complete=complete)

    def _arrive(self, seen: _Seen) -> None:
        pod, client = seen.pod, self.cluster.client
        self._to_come -= 1
        self._waiting += 1
        self._last = self.cluster.now
        body = objects.pod(pod, "default-scheduler")
        container: Object = body["spec"]["containers"][0]
        container["resources"]["requests"].pop(objects.GPU, None)
        container["resources"]["limits"].pop(objects.GPU, None)
        if pod.shape.gpus:
            client.create(
                CLAIMS, gpu_claims.claim_of(pod.name, pod.shape, pod.namespace), pod.namespace
            )
            container["resources"]["claims"] = [{"name": "gpus"}]
            body["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": pod.name}]
            body["spec"].get("nodeSelector", {}).pop(objects.MODEL_LABEL, None)
        client.create(PODS, body)

    def _look(self) -> None:
        """Start pods that were bound, and take their ends down."""
        changed = False
        while (event := self._watch.next(timeout=0)) is not None:
            metadata, spec = event.object.get("metadata", {}), event.object.get("spec", {})
            seen = self.pods.get(f"{metadata.get('namespace')}/{metadata.get('name')}")
            if seen is None or seen.state != "Pending":
                continue
            changed = True
            if spec.get("nodeName"):
                self._bound(seen, str(spec["nodeName"]))
            else:
                for condition in event.object.get("status", {}).get("conditions", []):
                    if condition.get("type") == "PodScheduled":
                        seen.reason = str(condition.get("message", ""))
        if changed:
            self._sample()

    def _bound(self, seen: _Seen, node: str) -> None:
        seen.state, seen.node, seen.reason = "Running", node, ""
        seen.started = self._last = self.cluster.now
        self._count(seen.pod, 1)
        self._status(seen, "Running")
        if seen.pod.duration is not None:
            self.cluster.engine.after(seen.pod.duration, partial(self._end, seen), priority=ENDING)

    def _end(self, seen: _Seen) -> None:
        seen.state, seen.ended = "Succeeded", self.cluster.now
        self._count(seen.pod, -1)
        self._over += 1
        self._last = self.cluster.now
        self._status(seen, "Succeeded")
        self._sample()

    def _count(self, pod: Pod, sign: int) -> None:
        self._running += sign
        self._waiting -= sign > 0
        self._cpu += sign * pod.shape.cpu
        self._gpu += sign * pod.shape.demand

    def _status(self, seen: _Seen, phase: str) -> None:
        self.cluster.client.patch(
            PODS,
            seen.pod.name,
            {"status": dict(objects.status(phase, self.cluster.now))},
            seen.pod.namespace,
            subresource="status",
        )

    def _sample(self) -> None:
        sample = Sample(
            when=self.cluster.now - self.begin,
            waiting=self._waiting,
            running=self._running,
            cpu=self._cpu,
            gpu=self._gpu,
            fragmented=0.0,
        )
        if self.samples and self.samples[-1].when == sample.when:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)

    def _result(self, *, complete: bool) -> Result:
        lanes = list(self.nodes)
        place = {lane: index for index, lane in enumerate(lanes)}
        capacity = {"cpu": sum(node.cpu for node in self.nodes.values())}
        gpus = sum(node.gpus for node in self.nodes.values())
        if gpus:
            capacity["gpu"] = WHOLE_GPU * gpus

        def since(when: int | None) -> int | None:
            return None if when is None else when - self.begin

        tasks = [
            Task(
                id=seen.pod.name if seen.pod.namespace == "default" else seen.pod.key,
                user=seen.pod.user,
                state=seen.state,
                submitted=seen.pod.arrives,
                bound=since(seen.started),
                started=since(seen.started),
                ended=since(seen.ended),
                width=max(1, -(-seen.pod.shape.cpu // 1000)),
                lanes=(place[seen.node],) if seen.node in place else (),
                gpu_milli=seen.pod.shape.demand,
                reason=seen.reason,
            )
            for seen in self.pods.values()
        ]
        return Result(
            name=self.scenario.name,
            scheduler=NAME,
            seed=self.scenario.seed,
            tasks=tasks,
            samples=self.samples,
            lanes=lanes,
            capacity=capacity,
            end=self.cluster.now - self.begin,
            complete=complete,
        )


def run(
    scenario: Scenario,
    progress: Callable[[int, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Run a scenario with dralab's own scheduler; InputError for what it has no word for."""
    how = scenario.circumstances
    if how.faults or how.random_faults or how.quotas or how.life.failure:
        raise InputError(
            scenario.file,
            "faults, quotas and failures are for the built-in policies",
            where="faults",
        )
    if any(pod.gang for pod in scenario.pods()):
        raise InputError(scenario.file, "gangs are for the built-in policies", where="workload")
    return InsideRun(scenario).go(progress, stop)

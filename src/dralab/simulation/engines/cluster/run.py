"""A scenario on a simulated cluster: the live components, on one heap of events.

Scheduler, allocator, controllers, kubelets and drivers are those of `dralab up`, with identical
decisions. GPUs are devices of a driver, and a fraction of one is a consumable capacity that several
claims may share. Only containers differ: they run for a given time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.api.releases import MIXED
from dralab.api.status import ApiError
from dralab.components import snapshots
from dralab.components.simulated import SimulatedCluster
from dralab.drivers.catalog import DRIVERS
from dralab.drivers.driver import Driver
from dralab.kernel.clock import SECOND
from dralab.kernel.events import BEGINNING, RETURNING
from dralab.kernel.randomness import Randomness
from dralab.objects.claims import allocation_of, claim_names, results_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import (
    annotations_of,
    is_deleting,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished
from dralab.runtime.resources import CLAIMS, NODES, PODS, SLICES
from dralab.scenarios import code
from dralab.scenarios.errors import InputError
from dralab.scheduling.pods import PodInfo
from dralab.simulation import checkpoints
from dralab.simulation.engines.autoscaling.autoscalers import autoscaler_of
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines
from dralab.simulation.engines.cluster.containers import TaskContainers
from dralab.simulation.engines.cluster.created_objects import CreatedObjects
from dralab.simulation.engines.cluster.faults import FaultInjector
from dralab.simulation.engines.cluster.nodes import SimulatedNodes
from dralab.simulation.engines.cluster.pools import ClusterPools
from dralab.simulation.engines.cluster.queues import AdmissionQueues
from dralab.simulation.engines.cluster.submission import GATE, SCHEDULER, TaskObjects, gangs_of
from dralab.simulation.engines.cluster.tasks import (
    ClusterTask,
    ClusterTasks,
    GpuUsage,
    all_devices,
)
from dralab.simulation.engines.fleet_nodes import capacity_of
from dralab.simulation.engines.own_choice import OwnChoice
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.lifecycle.model import Pod, Quotas
from dralab.simulation.policies.user_policy import UserPolicy
from dralab.simulation.results.result import Result
from dralab.simulation.scenario import manifests
from dralab.simulation.scenario.fleet import checked_node
from dralab.simulation.scenario.manifests import Arrival
from dralab.simulation.scenario.recorded import pod_running
from dralab.simulation.scenario.scenario import Scenario, digest
from dralab.values.json_types import JsonDict

# If nothing has changed for so long, and nothing is certain to end or come, the run is over.
QUIET_LIMIT: Final = 600 * SECOND
# Explaining takes longer than scheduling; after so many, the rest get the short sentence.
MOST_EXPLAINED: Final = 100
# Of one instant, for each pod: controllers may make pods anew for which others have to go again.
EVICTIONS: Final = 4
# After a refusal for a quota, the controller needs a moment to count what has ended.
RECOUNT: Final = SECOND


class ClusterRun:
    """One run; `go` runs it to the end, or until it is stopped; then it can be resumed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        how = scenario.conditions
        # During the run, one sentence about each waiting pod; at the end, everything.
        self.cluster = SimulatedCluster(
            seed=scenario.seed, version=scenario.version, features=scenario.features, brief=True
        )
        assert self.cluster.scheduler is not None  # noqa: S101 - it is not left out
        self.scheduler = self.cluster.scheduler
        self.work = scenario.pods()
        nodes = scenario.fleet.as_nodes()
        self.capacity, self.types = capacity_of(nodes)
        if scenario.pools or scenario.fleet.counted:
            nodes = scenario.fleet.without_shares()
            self.types = {}  # which nodes there will be is not known
        gpus = GpuUsage(nodes, self.work) if self.types and self.work else None
        self.tasks = ClusterTasks(types=list(self.types), gpus=gpus)
        self._by_name: dict[tuple[str, str], ClusterTask] = {}
        self._refused: list[ClusterTask] = []
        self._steps = 0
        self._to_come = 0
        self.complete = False
        chance = Randomness(scenario.seed)
        self.containers = TaskContainers(self.cluster.engine, how.life, chance, self)
        self.created_objects = CreatedObjects(self.cluster, counted=scenario.fleet.counted)
        self._begins = self.cluster.now + SECOND
        for arrival in scenario.fleet.changes:
            if arrival.body["kind"] == "ResourceSlice":
                self.created_objects.expect(arrival.body)
        for body in CreatedObjects.ordered(scenario.fleet.objects):
            self._create(body, "fleet")
        self._start_from(scenario.fleet.running)
        self.nodes = SimulatedNodes(
            self.cluster,
            nodes,
            self.containers,
            self._driver,
            self.created_objects.drivers,
        )
        gangs = gangs_of(self.work)
        self.bodies = TaskObjects(self.cluster, gangs)
        self.queues = AdmissionQueues(
            Quotas(how.quotas),
            self.cluster.engine.events,
            lambda pod: gangs[pod.namespace, pod.gang],
            self._open_gate,
        )
        self.faults = FaultInjector(
            self.cluster,
            self.nodes,
            self._node_lost,
            at_random=how.random_faults,
            stream=chance.stream,
        )
        self.autoscaler: Autoscaler | None = None
        there = {node.name: node.gpus for node in scenario.fleet.as_nodes()}
        self._there = {name: there.get(name, 0) for name in self.nodes.devices}
        host = ClusterPools(
            self.cluster,
            self.nodes,
            self.created_objects,
            lost=self._node_lost,
            changed=self._machines_changed,
        )
        self.machines = Machines(host, pools=scenario.pools, chance=chance, begin=self._begins)
        # Nodes, drivers and controllers have seen each other; the run begins now.
        self.cluster.wait(1)
        self.begin = self._last = self.cluster.now
        for task in self.tasks.by_uid.values():
            task.created = task.bound = self.begin
            task.started = task.started and self.begin
        if scenario.is_own:
            self._obey(UserPolicy(scenario, "cluster", chance.stream("policy")))
        if scenario.pools:
            self.autoscaler = autoscaler_of(self.machines, scenario.autoscaler, chance, self.begin)
            for resource in (PODS, NODES, SLICES):
                self.cluster.manager.cache(resource).subscribe(lambda _old, _new: self._look())
        self.quiet_limit = max(QUIET_LIMIT, 2 * max(map(_tolerated, self.work), default=0))
        self.cluster.manager.cache(PODS).subscribe(self._pod)
        self._plan()

    def _obey(self, policy: UserPolicy) -> None:
        """Let a user's policy decide in the scheduler."""
        scheduler = self.scheduler
        choice = OwnChoice(
            policy,
            scheduler.state.table,
            self.tasks.by_uid,
            record_of=self._task_of,
            now=lambda: self.cluster.now,
            begin=self.begin,
            gpus_of=self._gpus_of,
        )
        scheduler.state.choice, scheduler.queue.rank = choice, choice.rank

    def _task_of(self, pod: PodInfo) -> ClusterTask:
        task = self.tasks.by_uid.get(pod.uid) or self._known(pod.obj)
        return task or ClusterTask(manifests.of_object(pod.obj, 0), name=pod.key.name)

    def _gpus_of(self, node: str) -> tuple[tuple[int, ...], str]:
        return ((), "") if self.tasks.gpus is None else self.tasks.gpus.left_of(node)

    def _plan(self) -> None:
        how = self.scenario.conditions
        for arrival in self.scenario.fleet.changes:
            self._at(arrival.when, partial(self._change, arrival))
        for arrival in self.scenario.work.objects:
            self._at(arrival.when, partial(self._bring, arrival))
        for pod in self.work:
            if not pod.owner:
                task = ClusterTask(pod, name=pod.name)
                self.tasks.records.append(task)
                self._at(pod.arrives, partial(self._arrive, task))
                if pod.leaves is not None:
                    self._at(pod.leaves, partial(self._leave, task))
        self.faults.plan(how.faults, self._there, self.begin)

    def _start_from(self, running: Sequence[JsonDict]) -> None:
        """Begin with the pods and claims of a snapshot, or of a recording.

        Waiting pods are tasks of the run, and running ones whose end is known.
        """
        made = self.created_objects
        running = [made.without_gates(each) for each in running if made.knows(each)]
        snapshots.load(self.cluster, running)
        for body in running:
            node = spec_of(body).get("nodeName")
            counts = not node or manifests.ARRIVES in annotations_of(body)
            if body["kind"] != "Pod" or not counts or is_finished(body):
                continue
            pod = pod_running(body) if node else manifests.of_object(body, 0)
            task = ClusterTask(pod, name=pod.name)
            self._by_name[task.pod.namespace, task.name] = task
            self.tasks.records.append(task)
            if node:
                task.uid = uid_of(body)
                self.tasks.by_uid[task.uid] = task
                task.bind(node, self.cluster.now)
                task.devices = tuple(self._devices(task, body))
                self.tasks.count_held(task, 1)
            else:
                self.tasks.wait(task, 1)

    def _at(self, when: int, action: Callable[[], None]) -> None:
        self._to_come += 1

        def run() -> None:
            self._to_come -= 1
            self._last = self.cluster.now
            action()

        self.cluster.engine.at(self.begin + when, run, priority=BEGINNING)

    def _driver(self, name: str, node: str) -> Driver:
        if name in DRIVERS:
            return DRIVERS[name](node)
        made = code.load_class(name, self.scenario.file, "drivers")(node)
        if not isinstance(made, Driver):
            raise InputError(self.scenario.file, f"{name} is not a Driver", where="fleet")
        return made

    # --- running ------------------------------------------------------------------------------

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Run everything; return the result."""
        engine, until = self.cluster.engine, self.scenario.conditions.until
        tasks = self.tasks
        instant = most = 0
        while (when := engine.events.next_time()) is not None:
            if when != instant:
                instant, most = when, tasks.evicted + EVICTIONS * (len(tasks.records) + 10)
            elif tasks.evicted > most:
                raise self._stands_still(when)
            if until is not None and when > self.begin + until:
                engine.run(self.begin + until)
                break
            if self._at_rest(when) or self._enough():
                break
            engine.step()
            self._steps += 1
            if self._steps % 256 == 0:
                if progress is not None:
                    progress(when - self.begin, tasks.over, len(tasks.records))
                if stop is not None and stop():
                    return self.result()
        self.complete = True
        self._explain()
        return self.result()

    def _stands_still(self, when: int) -> InputError:
        """Return the error that controllers' pods are evicted and created again without end."""
        task = max(self.tasks.records, key=lambda task: (task.evictions > 0, task.number))
        return InputError(
            self.scenario.file,
            f"at {(when - self.begin) / SECOND:g}s pods are evicted and made anew without end, the "
            f"last one {task.pod.key}; a live cluster takes time for it, which the simulation does "
            "not: write the pods without a controller, or use `--scheduler dralab-fast`",
            where=task.pod.owner or f"Pod {task.pod.key}",
        )

    def _explain(self) -> None:
        """Record why each waiting pod waits, in detail."""
        waiting = [
            task
            for task in self.tasks.records
            if task.uid and task.bound is None and not task.is_over
        ]
        for task in waiting[:MOST_EXPLAINED]:
            pod = self.cluster.client.get(PODS, task.name, task.pod.namespace)
            if not pod["spec"].get("schedulingGates") and not pod["spec"].get("schedulingGroup"):
                task.reason = self.scheduler.why_not(pod) or task.reason

    def _at_rest(self, when: int) -> bool:
        """Return whether nothing of interest can happen any more."""
        if self._to_come:
            return False
        if self.tasks.over == len(self.tasks.records):
            # Controllers may still create pods.
            return when > self._last + RECOUNT
        waits = self.faults.to_come or self.containers.busy or self.machines.to_come
        if self.autoscaler is not None and self.autoscaler.waits:
            return False
        return not waits and when > self._last + self.quiet_limit

    def _enough(self) -> bool:
        wanted = self.scenario.conditions.ended
        return wanted is not None and self.tasks.over >= wanted

    def save(self, path: Path) -> None:
        """Write a checkpoint of the progress. Resuming replays the run up to there."""
        checkpoints.write(path, digest(self.scenario), self._steps)

    @classmethod
    def resumed(cls, scenario: Scenario, path: Path) -> "ClusterRun":
        """Return a run that continues from a checkpoint of the same scenario."""
        steps = checkpoints.read(path, digest(scenario))
        run = cls(scenario)
        while run._steps < steps and run.cluster.engine.step():
            run._steps += 1
        return run

    # --- arrivals -----------------------------------------------------------------------------

    def _bring(self, arrival: Arrival) -> None:
        metadata = metadata_of(arrival.body)
        self.bodies.namespace(str(metadata.get("namespace") or "default"))
        if self.scenario.work.until is None or not self.created_objects.change(arrival):
            self._create(arrival.body, "workload")

    def _change(self, arrival: Arrival) -> None:
        """Let a node of a recorded history come, change or go, or what belongs to one."""
        body, name = arrival.body, metadata_of(arrival.body)["name"]
        is_node = body["kind"] == "Node"
        if is_node and arrival.gone:
            self._node_lost(name)
            self.nodes.remove(name)
            return
        try:
            is_known = self.created_objects.change(arrival)
        except ApiError as error:
            raise self._wrong(f"{body['kind']} {name}", error, "fleet") from None
        if not is_known:
            self._create(body, "fleet")
            if is_node:
                node = checked_node(body, self.scenario.file.name)
                self.nodes.add(replace(node, gpus=0, model=""))

    def _create(self, body: Mapping[str, Any], where: str) -> None:
        self.created_objects.create_written(body, self.scenario.file, where, self.work)

    def _arrive(self, task: ClusterTask) -> None:
        self.tasks.wait(task, 1)
        self._submit(task)

    def _leave(self, task: ClusterTask) -> None:
        """Delete a pod that still waits, as its user did."""
        if task.bound is None and not task.is_over:
            task.pod = replace(task.pod, returns=False)
            task.reason = "deleted while it waited"
            self.cluster.client.delete(PODS, task.name, task.pod.namespace)

    def _submit(self, task: ClusterTask) -> None:
        queued = self.queues.has(task.pod)
        opens = None if queued or task.pod.opens is None else self.begin + task.pod.opens
        gated = queued or (opens is not None and opens > self.cluster.now)
        self._by_name[task.pod.namespace, task.name] = task
        try:
            body = self.bodies.pod(task.pod, task.name, gated=gated)
            body = self.created_objects.without_gates(body)
            self.cluster.client.create(PODS, body, task.pod.namespace)
        except ApiError as error:
            is_quota = error.reason == "Forbidden"
            if not is_quota and self.scenario.version == MIXED:
                raise self._wrong(f"Pod {task.pod.key}", error) from None
            general = ApiError.forbidden(PODS.plural, task.name, "").message
            self.tasks.refused(task, error.message, [error.message.removeprefix(general)])
            if is_quota:
                self._refused.append(task)
            return
        if queued:
            self.queues.add_task(task)
        elif gated and opens is not None:
            self.cluster.engine.at(opens, partial(self._open_gate, task), priority=BEGINNING)

    def _wrong(self, what: str, error: ApiError, where: str = "workload") -> InputError:
        return InputError(self.scenario.file, error.message, where=f"{where}: {what}")

    def _open_gate(self, task: ClusterTask) -> None:
        if task.gone:
            return  # it was deleted meanwhile
        pod = self.cluster.client.get(PODS, task.name, task.pod.namespace)
        gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != GATE]
        spec = {**pod["spec"], "schedulingGates": gates}
        self.cluster.client.update(PODS, {**pod, "spec": spec})

    def _try_refused(self) -> None:
        refused, self._refused = self._refused, []
        for task in refused:
            self._submit(task)

    # --- events of pods -----------------------------------------------------------------------

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        pod = new if new is not None else old
        if pod is None:
            return
        task = self.tasks.by_uid.get(uid_of(pod)) or self._known(pod)
        if task is None or task.is_over:
            return
        if new is None or is_deleting(new):
            self._deleted(task)
        else:
            self._changed(task, new)
        self.tasks.sample(self.cluster.now - self.begin)

    def _known(self, pod: JsonDict) -> ClusterTask | None:
        """Return the task of a new pod: of the scenario, or a controller's."""
        metadata = pod["metadata"]
        key = metadata.get("namespace", ""), metadata["name"]
        task = self._by_name.get(key)
        if task is None:
            if not metadata.get("ownerReferences"):
                return None
            task = ClusterTask(
                manifests.of_object(pod, self.cluster.now - self.begin), name=metadata["name"]
            )
            self._by_name[key] = task
            self.tasks.records.append(task)
            self.tasks.wait(task, 1)
        task.uid = uid_of(pod)
        self.tasks.by_uid[task.uid] = task
        self._last = self.cluster.now
        return task

    def _changed(self, task: ClusterTask, pod: JsonDict) -> None:
        status = status_of(pod)
        node = pod["spec"].get("nodeName")
        if node and task.bound is None:
            self._last = self.cluster.now
            task.bind(node, self._last)
            task.devices = tuple(self._devices(task, pod))
            self.tasks.wait(task, -1)
            self.tasks.count_held(task, 1)
            if self.autoscaler is not None:
                self.autoscaler.pod_moved(node)
        if not node:
            told = condition_of(pod, "PodScheduled") or {}
            if told.get("reason") == "Unschedulable" and told.get("message"):
                item = self.scheduler.queue.get(task.uid)
                causes = () if item is None else item.causes
                self.tasks.refused(task, str(told["message"]), (cause.title for cause in causes))
                if self.autoscaler is not None:
                    self.autoscaler.pod_refused(task.uid)
        failed = status["phase"] == "Failed"
        # Pods of a node that is gone fail when they are deleted: they come again.
        if is_finished(pod) and not (failed and task.lost):
            self._finished(task, failed=failed, why=status.get("reason") or "")

    def started(self, uid: str) -> None:
        """Note that a container runs."""
        task = self.tasks.by_uid.get(uid)
        if task is not None and task.started is None:
            self._last = self.cluster.now
            task.start(self._last)

    def ended(self, uid: str, code: int) -> None:
        """Note that a container has ended."""
        task, self._last = self.tasks.by_uid.get(uid), self.cluster.now
        if task is not None:
            task.ended, task.failed = self.cluster.now, task.failed or code != 0
            task.since = self.cluster.now

    def _devices(self, task: ClusterTask, pod: JsonDict) -> list[str]:
        """Return a pod's allocation, which is written before the pod is bound."""
        found = []
        for name in claim_names(pod):
            claim = self.cluster.client.get(CLAIMS, name, task.pod.namespace)
            results = results_of(allocation_of(claim))
            found += [str(result["device"]) for result in results]
        return found

    def _finished(self, task: ClusterTask, *, failed: bool, why: str) -> None:
        self._free(task)
        if task.ended is None:
            task.ended = self.cluster.now
        if failed:
            task.lose_run(self.cluster.now, self.scenario.conditions.life)
        if failed and not task.pod.owner:
            task.failures += 1
            if task.failures <= self.scenario.conditions.life.retries:
                self._begin_anew(task, "failed while running")
                return
        task.state = "Failed" if failed else "Succeeded"
        task.reason = why or ("failed while running" if failed else "")
        self.tasks.over += 1

    def _deleted(self, task: ClusterTask) -> None:
        """Handle a pod that was deleted before its end: evicted, preempted, or by its owner."""
        if task.gone:
            return
        task.gone = True
        if task.bound is not None and not task.lost:
            self._lose_run(task)
        self._free(task)
        if task.pod.owner or not task.pod.returns:
            # Its controller makes another one, which is a task of its own.
            task.state, task.ended = "Failed", self.cluster.now
            task.reason = task.reason or "deleted before it was done"
            self.tasks.over += 1
            return
        self._begin_anew(task, task.reason or "evicted or preempted")

    def _lose_run(self, task: ClusterTask) -> None:
        self.tasks.evict(task)
        task.lose_run(self.cluster.now, self.scenario.conditions.life)

    def left(self, uid: str, length: int) -> int:
        """Return how long a run takes, less what was saved of the runs before."""
        task = self.tasks.by_uid.get(uid)
        length += max(0, self._begins - self.cluster.now)  # those that ran before the beginning
        return length if task is None else task.left(length, self.scenario.conditions.life)

    def _begin_anew(self, task: ClusterTask, why: str) -> None:
        # Later events of the old pod are ignored.
        self.tasks.by_uid.pop(task.uid, None)
        self._by_name.pop((task.pod.namespace, task.name), None)
        task.begin_anew(why)
        self.tasks.wait(task, 1)
        self.cluster.engine.after(0, lambda: self._submit(task), priority=RETURNING)

    def _free(self, task: ClusterTask) -> None:
        if task.bound is not None:
            self.tasks.count_held(task, -1)
            task.run_again(self.cluster.now)
            if self.autoscaler is not None:
                self.autoscaler.pod_moved(task.node)
        else:
            self.tasks.wait(task, -1)
        if self.queues.has(task.pod):
            self.queues.release_task(task)
        self._last = self.cluster.now
        if self._refused:
            self.cluster.engine.after(RECOUNT, self._try_refused)

    def _node_lost(self, name: str) -> None:
        for task in self.tasks.by_uid.values():
            if task.node == name and task.bound is not None and not task.is_over and not task.gone:
                self._lose_run(task)
                before = task.state, task.started
                task.pause(self.cluster.now, "its node went down")
                if task.pod.owner:
                    # It is replaced; the others may start again on the same node.
                    task.state, task.started = before

    def _look(self) -> None:
        if self.autoscaler is not None:
            self.autoscaler.look()

    def _machines_changed(self) -> None:
        self._last = self.cluster.now
        if self.autoscaler is not None:
            self.autoscaler.changed()

    def _notes(self) -> Iterator[str]:
        yield from self.created_objects.notes()
        others = sum(map(_names_another, self.work))
        if others:
            yield f"pods that name another scheduler: {others}; dralab schedules them all"

    # --- the end ------------------------------------------------------------------------------

    def result(self) -> Result:
        """Return the result so far."""
        over = self.complete and self.tasks.over == len(self.tasks.records)
        end = self._last if over else self.cluster.now
        found = self.tasks.result(
            self.scenario,
            all_devices(self.nodes.devices, self.created_objects.devices),
            (self.begin, end),
            self.faults.of_nodes.outages.until(end),
        )
        return replace(
            found,
            capacity=self.machines.most(end, self.capacity),
            types=self.types,
            notes=list(self._notes()),
            complete=self.complete,
            nodes=self.machines.spans(self.begin, end),
        )


def _names_another(pod: Pod) -> bool:
    named = pod.scheduler or ((pod.body or {}).get("spec") or {}).get("schedulerName")
    return named not in {None, "", SCHEDULER, "default"}


def _tolerated(pod: object) -> int:
    body = getattr(pod, "body", None) or {}
    spec = spec_of(body)
    found = [item.get("tolerationSeconds") or 0 for item in spec.get("tolerations") or ()]
    return max(found, default=0) * SECOND

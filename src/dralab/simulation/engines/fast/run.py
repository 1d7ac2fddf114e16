"""Runs a scenario with dralab's scheduler in memory: like kube-scheduler, or by a policy.

With `dralab-fast` and the allocator's policies, the GPUs of a fleet are devices that claims ask
for; with the others they are shared, and pods ask for thousandths of them.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from dralab.objects.metadata import NamespacedName, key_of
from dralab.runtime.garbage import rare_collections
from dralab.runtime.resources import CLAIM_TEMPLATES, CLASSES, NODES
from dralab.scheduling.scores import NodeChoice
from dralab.scheduling.state import ClusterState
from dralab.simulation import checkpoints
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.autoscaling.autoscalers import autoscaler_of
from dralab.simulation.engines.autoscaling.machines import Machines
from dralab.simulation.engines.cluster.created_objects import CreatedObjects
from dralab.simulation.engines.cluster.tasks import (
    ClusterTask,
    ClusterTasks,
    GpuUsage,
    all_devices,
)
from dralab.simulation.engines.fast.admitted import AdmittedObjects
from dralab.simulation.engines.fast.choices import choice_named
from dralab.simulation.engines.fast.claim_book import ClaimBook
from dralab.simulation.engines.fast.engine import BEGIN, FastSimulation
from dralab.simulation.engines.fast.inventory import GpusAre, Inventory, empty_state
from dralab.simulation.engines.fast.pools import FastPools
from dralab.simulation.engines.fleet_nodes import capacity_of
from dralab.simulation.engines.fragmentation import FragmentationLedger
from dralab.simulation.engines.own_choice import OwnChoice
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.policies.user_policy import UserPolicy
from dralab.simulation.results.result import Result
from dralab.simulation.scenario.scenario import Scenario, digest
from dralab.simulation.scenario.schedulers import ALLOCATION_PREFIX, FAST
from dralab.simulation.workloads.openb import WHOLE_GPU


class FastRun:
    """One run. InputError: the scenario needs the cluster engine."""

    acts: type[FastSimulation] = FastSimulation

    def __init__(self, scenario: Scenario, resume: Path | None = None) -> None:
        unsupported.refuse_fast(scenario)
        self.scenario = scenario
        self.complete = False
        nodes = scenario.fleet.as_nodes()
        self.capacity, self.types = capacity_of(nodes)
        gpus_are = _gpus_are(scenario)
        if scenario.fleet.counted and gpus_are != "shares":
            nodes, self.types = scenario.fleet.without_shares(), {}
        if scenario.pools:
            self.types = {}  # which nodes there will be is not known
        self.admitted = AdmittedObjects(scenario, gpus_are)
        work = self.admitted.pods
        self.tasks = ClusterTasks(types=list(self.types))
        self.tasks.records = [
            ClusterTask(pod, number, name=pod.name) for number, pod in enumerate(work)
        ]
        admitted = self.admitted
        claims = ClaimBook(partial(admitted.stored, CLAIM_TEMPLATES))
        self.inventory = Inventory(nodes, gpus_are)
        state = empty_state(claims.get, admitted.features(), claims.made_for)
        self.simulation = self.acts(
            state,
            claims,
            admitted,
            self.tasks,
            how=scenario.conditions,
            gpus={node.name: node.gpus for node in nodes},
            arrivals=scenario.work.objects,
            changes=scenario.fleet.changes,
        )
        for body in CreatedObjects.ordered(scenario.fleet.objects):
            self.simulation.objects.bring(body, "fleet")
        for body in self.inventory.classes():
            if admitted.stored(CLASSES, key_of(body)) is None:
                self.simulation.objects.bring(body, "fleet")
        self.inventory.load(state, lambda name: admitted.stored(NODES, NamespacedName("", name)))
        ledger = None
        if gpus_are == "shares":
            ledger = FragmentationLedger(state.table, (pod.request for pod in work))
        if self.types and work:
            self.tasks.follow_gpus(GpuUsage(nodes, work, ledger))
        state.choice = self._choice(state, ledger)
        for body in scenario.fleet.running:
            self.simulation.objects.take_over(body)
        for arrival in scenario.fleet.changes:
            if arrival.body["kind"] == "ResourceSlice":
                admitted.created.expect(arrival.body)
            elif arrival.body["kind"] == "Node":
                self.inventory.devices.setdefault(arrival.body["metadata"]["name"], [])
        self.machines: Machines | None = None
        if scenario.pools:
            self.machines = self._machines()
        self._begin()
        if resume is not None:
            self.simulation.go(steps=checkpoints.read(resume, digest(scenario)))

    def _machines(self) -> Machines:
        """Let machines of pools come and go as an autoscaler decides."""
        scenario, simulation = self.scenario, self.simulation
        host = FastPools(simulation, self.inventory)
        chance = simulation.chance
        machines = Machines(host, pools=scenario.pools, chance=chance, begin=BEGIN)
        host.autoscaler = autoscaler_of(machines, scenario.autoscaler, chance, BEGIN)
        simulation.observer = host
        return machines

    def _begin(self) -> None:
        """Prepare the run before the first event."""

    def _choice(self, state: ClusterState, ledger: FragmentationLedger | None) -> NodeChoice:
        """Return how the scenario chooses nodes."""
        scenario, table = self.scenario, state.table
        name, chance = scenario.scheduler, self.simulation.chance.stream("policy")
        if name == FAST:
            return state.choice
        if scenario.is_own:
            simulation, by_uid = self.simulation, self.tasks.by_uid
            choice = OwnChoice(
                UserPolicy(scenario, scenario.runs_in, chance),
                table,
                by_uid,
                record_of=lambda pod: by_uid[pod.uid],
                now=simulation.now,
                begin=BEGIN,
            )
            simulation.queue.rank = choice.rank
            return choice
        coming = [node for pool in scenario.pools for node in pool.fleet.nodes]
        return choice_named(name, table, ledger, chance, coming)

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Continue the run."""
        with rare_collections():
            self.complete = self.simulation.go(progress, stop)
            return self.result()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the progress. Resuming replays the run up to there."""
        checkpoints.write(path, digest(self.scenario), self.simulation.steps)

    def result(self) -> Result:
        """Return the result so far."""
        simulation, machines, created = self.simulation, self.machines, self.admitted.created
        end = simulation.now()
        found = self.tasks.result(
            self.scenario,
            all_devices(self.inventory.devices, created.devices),
            (BEGIN, end),
            simulation.lives.faults.outages.until(end),
        )
        return replace(
            found,
            capacity=self.capacity if machines is None else machines.most(end, self.capacity),
            types=self.types,
            notes=[*unsupported.left_out(self.scenario.fleet), *created.notes()],
            complete=self.complete,
            nodes=[] if machines is None else machines.spans(BEGIN, end),
        )


def _gpus_are(scenario: Scenario) -> GpusAre:
    """Return how the fleet represents GPUs."""
    if scenario.scheduler == FAST:
        return "parts"
    if scenario.scheduler.startswith(ALLOCATION_PREFIX):
        parts = any(pod.request.milli % WHOLE_GPU for pod in scenario.pods())
        return "parts" if parts else "devices"
    return "shares"

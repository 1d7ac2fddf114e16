"""What the unmodified kube-scheduler decides about one pod in a given state, under the virtual clock.

The objects of a state go straight into the store of a server, as they are; then the pod comes. Once
the scheduler, the server and the sockets between them are idle, its decision has been written.
"""

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stockparts
from dralab.api.resource.conversion import convert, hub_version
from dralab.apiserver.storage import Key
from dralab.cluster import Cluster, Options
from dralab.kernel.clock import SECOND, ManualClock
from dralab.objects.conditions import condition_of
from dralab.runtime.resources import NAMESPACES
from dralab.simulation.engines.external.clocked_processes import ClockedLauncher, ServerTurns
from dralab.simulation.engines.external.run import BUSY
from dralab.simulation.engines.external.schedulers import (
    CONFIGURATION,
    SchedulerCommand,
    SchedulerProcesses,
    started,
)
from dralab.values.json_types import JsonDict
from dralab.virtualtime import Supervisor

START = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z
WARM_UP = 10 * SECOND
LOOK = 0.05
GIVES_UP = 700 * SECOND
# The plugin of `conformance/nodereasons`: what it writes, and what lets it refuse every node.
REPORTER = "NodeReasons"
REFUSE = {"dralab.example/refuse-all-nodes": "yes"}
FITS = "fits"
# Informational plugins come before others, of which the first that finds room ends the list.
PLUGINS = f"""  plugins:
    filter: {{enabled: [{{name: {REPORTER}}}]}}
    postFilter:
      disabled: [{{name: "*"}}]
      enabled: [{{name: {REPORTER}}}, {{name: DynamicResources}}, {{name: DefaultPreemption}}]
"""
SCORED = re.compile(r'"Plugin scored node for pod" .*plugin="(\w+)" node="([^"]+)" score=(-?\d+)')
# What plugins say that tried to make room follows the reasons.
AFTERWARDS = re.compile(
    r"\. (?:no new claims to deallocate|still not schedulable|not found|preemption:)"
)
# What a server would have filled in.
OWN = {"schedulerName": "default-scheduler", "preemptionPolicy": "PreemptLowerPriority"}
# Batching hands what was found for one pod to the next one like it; the state differs here.
# DRADeviceTaintRules stays off, as it is: kube-scheduler 1.36.2 with it panics at a v1beta2 rule.
GATES = "OpportunisticBatching=false"

PLAIN = Options(timers=False)

# When pods of random clusters were deleted that end still.
BEFORE = "2026-01-01T00:00:00Z"

Points = dict[str, dict[str, int]]
"""The weighted points of nodes, by plugin."""


@dataclass
class StockVerdict:
    """Where a pod went, or what its condition says; the weighted points of nodes by plugin."""

    node: str = ""
    message: str = ""
    nominated: str = ""
    evicted: list[str] = field(default_factory=list)
    points: Points = field(default_factory=dict)
    claims: list[JsonDict] = field(default_factory=list)
    by_node: dict[str, list[str]] = field(default_factory=dict)
    """Why each node is refused; `FITS`: it is not."""

    @property
    def reasons(self) -> dict[str, int]:
        """The nodes that each reason of the message counts, without what it says of preemption."""
        told = AFTERWARDS.split(self.message)[0].removesuffix(".")
        _, _, counted = told.partition("nodes are available: ")
        found = {}
        for part in filter(None, re.split(r"[,;.] (?=\d+ )", counted)):
            number, _, reason = part.partition(" ")
            if not number.isdecimal():
                return {counted: 0}
            found[reason] = int(number)
        return found


class StockScheduler:
    """A kube-scheduler that runs; `verdict` puts a state before it."""

    def __init__(
        self, cluster: Cluster, supervisor: Supervisor, processes: SchedulerProcesses
    ) -> None:
        self.cluster, self.supervisor, self.processes = cluster, supervisor, processes
        self.log = processes.running[0].log
        self._server = ServerTurns(cluster)
        self._read = 0
        self._states = 0
        supervisor.trust_local_peers()
        # Claims may ask for the access of administrators.
        labels = {"resource.kubernetes.io/admin-access": "true"}
        cluster.client.patch(NAMESPACES, "default", {"metadata": {"labels": labels}})
        self.settle()
        self._pass_until(START)

    def verdict(self, objects: Sequence[JsonDict], name: str) -> StockVerdict:
        """Return what is decided about the pod of a name, and why each node is refused."""
        found = self._asked(objects, name)
        if found.node:
            refused = self._asked([_refused(item, name) for item in objects], name)
            found.by_node = refused.by_node
        return found

    def _asked(self, objects: Sequence[JsonDict], name: str) -> StockVerdict:
        """Return what is decided about the pod of a name; the state is gone afterwards."""
        return self.verdicts(objects, [name])[name]

    def verdicts(
        self, objects: Sequence[JsonDict], names: Collection[str], patience: int = 0
    ) -> dict[str, StockVerdict]:
        """Return what is decided about pods that come at once, within so much time.

        The state is gone afterwards.
        """
        store = self.cluster.server.store
        self._states += 1
        stored = [_marked(as_stored(item), f"-{self._states}") for item in objects]
        come = [
            item for item in stored if item["kind"] == "Pod" and item["metadata"]["name"] in names
        ]
        others = [self._key(item) for item in stored if item not in come]
        with store.lock, store.batch():
            for item in stored:
                if item not in come:
                    store.create(self._key(item), item)
        self.settle()
        self._skip_log()
        keys = {item["metadata"]["name"]: self._key(item) for item in come}
        with store.lock, store.batch():
            for item in come:
                store.create(keys[item["metadata"]["name"]], item)
        self.settle()
        if patience:
            self._pass_until(self.supervisor.now + patience)
        pods = [each for each in others if each.resource == "pods"]
        found = {name: self._decided(key, pods) for name, key in keys.items()}
        with store.lock, store.batch():
            for each in (*keys.values(), *reversed(others)):
                if store.get(each) is not None:
                    store.delete(each)
            # The scheduler makes claims for extended resources, and events.
            for resource in ("resource.k8s.io/resourceclaims", "events.k8s.io/events"):
                for each in list(store.list(resource).items):
                    store.delete(each.key)
        self.settle()
        # What is being bound holds devices until the scheduler gives up.
        binding = any(each.nominated or "PreBind" in each.message for each in found.values())
        self._pass_until(self.supervisor.now + (GIVES_UP if binding else SECOND))
        return found

    def settle(self) -> None:
        """Let the scheduler and the server finish what can be done at this instant."""
        waited = 0.0
        while True:
            if not self.supervisor.wait_idle(LOOK):
                waited += LOOK
                assert waited < 300, "the scheduler does not pause"
            elif not self._server.take():
                assert not self.processes.trouble(), self.processes.trouble()
                return
            else:
                self.supervisor.look_again()

    def close(self) -> None:
        self._server.close()

    def _decided(self, key: Key, others: Sequence[Key]) -> StockVerdict:
        store = self.cluster.server.store
        stored = store.get(key)
        assert stored is not None
        pod = stored.value
        condition = condition_of(pod, "PodScheduled") or {}
        message = condition.get("message") or ""
        nominated = (pod.get("status") or {}).get("nominatedNodeName") or ""
        found = StockVerdict(
            # While volumes and devices are being bound, the node is only nominated.
            node=pod["spec"].get("nodeName") or ("" if message else nominated),
            message=message,
            nominated=nominated,
            evicted=sorted(each.name for each in others if self._leaves(each)),
            claims=[item.value for item in store.list("resource.k8s.io/resourceclaims").items],
        )
        with self.log.open() as file:
            file.seek(self._read)
            for line in file:
                if line.startswith(REPORTER):
                    found.by_node = json.loads(line.removeprefix(REPORTER))["reasons"]
                elif match := SCORED.search(line):
                    found.points.setdefault(match[2], {})[match[1]] = int(match[3])
        return found

    def _leaves(self, key: Key) -> bool:
        """Whether a pod is gone, or was deleted since the state was stored."""
        found = self.cluster.server.store.get(key)
        if found is None:
            return True
        return found.value["metadata"].get("deletionTimestamp") not in {None, BEFORE}

    def _skip_log(self) -> None:
        self._read = self.log.stat().st_size

    def _pass_until(self, end: int) -> None:
        while (when := self.supervisor.next_deadline()) is not None and when <= end:
            self._advance(when)
        self._advance(end)

    def _advance(self, when: int) -> None:
        self.supervisor.advance(when)
        clock = self.cluster.clock
        assert isinstance(clock, ManualClock)
        clock.advance_to(when)
        self.settle()

    def _key(self, item: JsonDict) -> Key:
        kinds = self.cluster.server.resources.kinds
        kind = next(
            each
            for each in kinds
            if (each.api_version, each.kind) == (item["apiVersion"], item["kind"])
        )
        return Key(kind.hub, item["metadata"].get("namespace") or "", item["metadata"]["name"])


def as_stored(item: JsonDict) -> JsonDict:
    """An object as a server would have it, as far as a scheduler cares."""
    metadata = {
        "uid": uid_of(item),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **item["metadata"],
    }
    if item["kind"] == "DeviceTaintRule":
        return convert({**item, "metadata": metadata}, hub_version(item["kind"]))
    if item["kind"] != "Pod":
        return {**item, "metadata": metadata}
    return {**item, "metadata": metadata, "spec": {**OWN, **item["spec"]}}


def _refused(item: JsonDict, name: str) -> JsonDict:
    """The same, but every node is refused to the pod of a name; it preempts nobody."""
    if item["kind"] != "Pod" or item["metadata"]["name"] != name:
        return item
    metadata = item["metadata"] | {"annotations": REFUSE}
    return item | {"metadata": metadata, "spec": item["spec"] | {"preemptionPolicy": "Never"}}


def _marked(value: Any, mark: str) -> Any:
    """The same with other uids: a scheduler remembers pods by theirs."""
    if isinstance(value, dict):
        return {
            key: each + mark if key == "uid" else _marked(each, mark) for key, each in value.items()
        }
    return [_marked(each, mark) for each in value] if isinstance(value, list) else value


def uid_of(item: JsonDict) -> str:
    metadata = item["metadata"]
    given: str = metadata.get("uid") or f"{item['kind'].lower()}-{metadata['name']}"
    return given


@contextmanager
def stock_scheduler(
    part: str = stockparts.REASONS,
    *,
    plugins: str = PLUGINS,
    gates: str = GATES,
    options: Options = PLAIN,
) -> Iterator[StockScheduler]:
    """Run a kube-scheduler beside a server of its own."""
    program = stockparts.found(part) or part
    begin = START - WARM_UP
    with (
        Supervisor(start=begin, peers=(os.getpid(),), busy=BUSY, gates=True, note=print) as clock,
        Cluster(options, clock=ManualClock(begin), seed=1) as cluster,
        tempfile.TemporaryDirectory() as folder,
    ):
        config = Path(folder) / "reporting.yaml"
        named = CONFIGURATION.format(kubeconfig=cluster.kubeconfig, name="default-scheduler")
        config.write_text(named + plugins)
        words = [
            program, f"--config={config}", "--secure-port=0", "-v=2", "--vmodule=schedule_one=10",
            f"--feature-gates={gates}",
        ]  # fmt: skip
        command = SchedulerCommand(name="default-scheduler", words=words)
        launcher = ClockedLauncher(clock)
        with started([command], Path(folder), cluster, launcher) as processes:
            found = StockScheduler(cluster, clock, processes)
            try:
                yield found
            finally:
                found.close()

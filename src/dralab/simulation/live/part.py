"""An autoscaler as a part of a cluster, beside its control plane and its nodes."""

import logging
from collections.abc import Callable
from typing import Final

from dralab.components.control_plane import ControlPlaneHost
from dralab.components.nodes import Nodes
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.kernel.randomness import Randomness
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import labels_of, metadata_of, spec_of, uid_of
from dralab.objects.pods import is_finished
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CRDS, NODES, PODS, SLICES
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines
from dralab.simulation.live.live_pools import LivePools, create_if_missing
from dralab.simulation.live.pool_source import FoundPools, PoolSource
from dralab.simulation.scenario.pools import POOL_LABEL
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)
USER: Final = "system:serviceaccount:kube-system:dralab-autoscaler"
# It looks at least so often: what failed is tried again.
TICK: Final = 30 * SECOND
ONLY: Final = "pools"


class PoolAutoscaler:
    """Adds nodes for pods that wait, and removes those that nobody needs.

    `source` makes what reads the pools from the cluster; its machines are run by `nodes`, which
    starts before it.
    """

    def __init__(self, source: Callable[[Manager, Randomness], PoolSource], nodes: Nodes) -> None:
        self._new_source = source
        self.nodes = nodes
        self.engine: LiveEngine | None = None
        self.manager: Manager | None = None
        self.machines: Machines | None = None
        self.autoscaler: Autoscaler | None = None

    def start(self, cluster: ControlPlaneHost) -> None:
        """Start, with a running server."""
        chance = Randomness.from_system() if cluster.seed is None else Randomness(cluster.seed)
        engine = self.engine = LiveEngine(name="dralab-autoscaler", clock=cluster.clock)
        manager = self.manager = Manager(engine, cluster.client_of(USER), chance)
        self.source = self._new_source(manager, chance)
        for body in self.source.definitions():
            create_if_missing(cluster.client, CRDS, body)
        rules = cluster.server.resources.context.rules
        rules.optional = {
            about: part
            for about, part in rules.optional.items()
            if about[0] not in self.source.acts_on
        }
        self.recorder = manager.recorder(self.source.component)
        self.host = LivePools(engine, manager, self.nodes, self.source, self._changed)
        self._chance = chance
        self._told: set[tuple[str, str]] = set()
        queue = manager.queue("autoscaler/pools", self._read)
        self.source.subscribe(lambda: queue.add(ONLY))
        queue.add(ONLY)
        manager.cache(PODS).subscribe(self._pod)
        for resource in (NODES, SLICES):
            manager.cache(resource).subscribe(lambda _old, _new: self._look())
        manager.every(TICK, self._look)
        engine.soon(manager.start)
        engine.start()

    def stop(self) -> None:
        """Stop; the nodes stay."""
        if self.manager is not None:
            self.manager.stop()
        if self.engine is not None:
            self.engine.stop()
        self.engine = self.manager = self.machines = self.autoscaler = None

    # --- pools --------------------------------------------------------------------------------

    def _read(self, _: str) -> int | None:
        """Take over the pools as objects describe them now."""
        if self.engine is None:
            return None
        found = self.source.read()
        self._tell(found)
        if self.machines is None:
            self.machines = Machines(
                self.host,
                pools=(),
                chance=self._chance,
                begin=self.engine.now(),
                observer=self.source.observer(),
            )
            self.autoscaler = self.source.autoscaler(self.machines, self.engine.now())
        if found.pools is not None and self.autoscaler is not None:
            self.machines.set_pools(found.pools)
            self.source.obey(self.autoscaler)
            self._adopt(self.machines, self.autoscaler)
            self.source.report(self.machines)
            self.autoscaler.look()
        return None

    def _tell(self, found: FoundPools) -> None:
        """Say what is wrong with objects, or not acted on: once, until something else is."""
        said = {(metadata_of(each.about)["name"], each.message) for each in found.findings}
        for each in found.findings:
            name = metadata_of(each.about)["name"]
            if (name, each.message) in self._told:
                continue
            logger.warning("%s %s: %s", each.kind, name, each.message)
            self.recorder.event(
                each.about,
                each.kind,
                "InvalidConfiguration" if each.is_error else "NotActedOn",
                each.message,
                type="Warning",
                api_version=each.api_version,
            )
        self._told = said

    def _adopt(self, machines: Machines, autoscaler: Autoscaler) -> None:
        """Run the nodes of pools that were there before this process."""
        for node in self.host.known_nodes:
            name, pool = metadata_of(node)["name"], labels_of(node).get(POOL_LABEL)
            if pool in machines.settings and name not in machines.here:
                asked = from_rfc3339(metadata_of(node)["creationTimestamp"])
                autoscaler.adopted(machines.adopt(name, pool, asked))

    # --- what happens in the cluster ----------------------------------------------------------

    def _look(self) -> None:
        if self.autoscaler is not None:
            self.autoscaler.look()

    def _changed(self) -> None:
        if self.autoscaler is not None and self.machines is not None:
            self.autoscaler.changed()
            self.source.report(self.machines)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if self.autoscaler is None:
            return
        before = None if old is None or is_finished(old) else spec_of(old).get("nodeName")
        now = None if new is None or is_finished(new) else spec_of(new).get("nodeName")
        if before != now:
            self.autoscaler.pod_moved(now or before or "")
        told = None if new is None or now else condition_of(new, "PodScheduled")
        if new is not None and told is not None and told.get("reason") == "Unschedulable":
            self.autoscaler.pod_refused(uid_of(new))

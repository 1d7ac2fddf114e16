"""The events of autoscalers, as users see them with `kubectl describe`.

Sources: cluster-autoscaler 1.36 (`processors/status/eventing_scale_up_processor.go`,
`core/scaledown/actuation`), Karpenter of August 2026 (`provisioning/scheduling/events.go`,
`disruption/events/events.go`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dralab.capacity.autoscaling.node_pools import REASONS
from dralab.capacity.autoscaling.pools import add_node
from dralab.objects.metadata import NamespacedName
from dralab.runtime.manager import Manager
from dralab.runtime.resources import NODES
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import NO_DEVICES, Reason
from dralab.scheduling.state import Refusal
from dralab.simulation.engines.autoscaling.cluster_autoscaler import ClusterAutoscaler
from dralab.simulation.engines.autoscaling.machines import Machine, ScalingObserver
from dralab.simulation.live.node_claims import NodeClaims
from dralab.simulation.live.status_config_map import StatusConfigMap

# Of the pods that no pool helps, so many are told why: each is tried on each pool.
MOST_TOLD: Final = 50
TRIED: Final = "autoscaler-tries"


class NodeEvents(ScalingObserver):
    """Writes events about pods and nodes."""

    component = ""

    def __init__(self, manager: Manager) -> None:
        self.recorder = manager.recorder(self.component)
        self._nodes = manager.cache(NODES)

    def about_node(self, name: str, reason: str, message: str, *, warns: bool = False) -> None:
        """Record an event about a node, if it is there."""
        node = self._nodes.get(NamespacedName("", name))
        if node is not None:
            self.recorder.event(
                node, "Node", reason, message, type="Warning" if warns else "Normal"
            )


class ClusterAutoscalerEvents(NodeEvents):
    """The events of cluster-autoscaler."""

    component = "cluster-autoscaler"

    def __init__(self, manager: Manager, of: Callable[[], ClusterAutoscaler]) -> None:
        super().__init__(manager)
        self._of = of
        self._status = StatusConfigMap(manager, of)

    def looked(self) -> None:
        """Write the status."""
        self._status.look()

    def asked(self, machines: Sequence[Machine], pods: Sequence[PodInfo]) -> None:
        """Say of each pod which group grows for it."""
        if not machines:
            return
        all_machines, name = self._of().machines, machines[0].pool
        size, most = len(all_machines.of(name)), all_machines.settings[name].most
        before = size - len(machines)
        text = f"[{{{name} {before}->{size} (max: {most})}}]"
        grown = f"group {name} size to {size} instead of {before} (max: {most})"
        self._status.tell("ScaledUpGroup", f"Scale-up: setting {grown}")
        self._status.look()
        for pod in pods:
            self.recorder.event(
                pod.obj, "Pod", "TriggeredScaleUp", f"pod triggered scale-up: {text}"
            )

    def not_helped(self, model: ClusterModel, pods: Sequence[PodInfo]) -> None:
        """Say of each pod why no group grows for it."""
        for pod in pods[:MOST_TOLD]:
            counts = Counter(self._reasons(model, pod))
            text = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
            message = f"pod didn't trigger scale-up: {text}"
            self.recorder.event(pod.obj, "Pod", "NotTriggerScaleUp", message)

    def _reasons(self, model: ClusterModel, pod: PodInfo) -> Iterator[str]:
        autoscaler = self._of()
        for pool in autoscaler.machines.pools.values():
            if autoscaler.room(pool.name) <= 0:
                yield "max node group size reached"
            elif autoscaler.left_alone(pool.name) > autoscaler.events.now():
                yield "in backoff after failed scale-up"
            else:
                with model.tentatively():
                    add_node(model, pool, TRIED)
                    decided = model.try_pod(pod, TRIED)
                    asked = PodQuestion(model.state, pod, TRIED)
                    found = asked.refusals(TRIED) or (Reason(NO_DEVICES),)
                if isinstance(decided, Refusal):
                    yield from map(str, (decided.blocked,) if decided.blocked else found)

    def drained(self, machine: Machine) -> None:
        """Say of a node that it goes."""
        self.about_node(machine.name, "ScaleDown", "marked the node as toBeDeleted/unschedulable")

    def gone(self, machine: Machine) -> None:
        """Say of a node that it is gone."""
        self._status.look()
        self.about_node(machine.name, "ScaleDown", "nodes removed by cluster autoscaler")


class KarpenterEvents(NodeEvents):
    """The events of Karpenter."""

    component = "karpenter"

    def __init__(self, manager: Manager, claims: NodeClaims) -> None:
        super().__init__(manager)
        self._claims = claims

    def asked(self, machines: Sequence[Machine], pods: Sequence[PodInfo]) -> None:
        """Say of each pod which node will come for it."""
        for machine in machines:
            self._claims.asked(machine, pods)
            for pod in pods:
                message = f"Pod should schedule on: nodeclaim/{machine.name}"
                self.recorder.event(pod.obj, "Pod", "Nominated", message)

    def not_helped(self, model: ClusterModel, pods: Sequence[PodInfo]) -> None:
        """Say of each pod that no NodePool has a node for it."""
        del model
        for pod in pods[:MOST_TOLD]:
            message = "Failed to schedule pod, no instance type of any NodePool fits it"
            self.recorder.event(pod.obj, "Pod", "FailedScheduling", message, type="Warning")

    def drained(self, machine: Machine) -> None:
        """Say of a node that it goes, and why; nothing is said of one that somebody deleted."""
        self._claims.changed(machine)
        if machine.reason in REASONS:
            kind, reason = "DisruptionTerminating", machine.reason
            self.about_node(machine.name, kind, f"Disrupting Node: {reason}")
            self._claims.tell(machine, kind, f"Disrupting NodeClaim: {reason}")

    def gone(self, machine: Machine) -> None:
        """Let the NodeClaim go."""
        self._claims.changed(machine)

"""What a node is to be: its name, amounts, labels and taints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node to be: quantities as texts."""

    name: str
    cpu: str = "16"
    memory: str = "64Gi"
    storage: str = "100Gi"
    pods: str = "110"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()

    def amounts(self) -> dict[str, str]:
        """Return what the node has, as its status states it."""
        return {
            "cpu": self.cpu,
            "ephemeral-storage": self.storage,
            "memory": self.memory,
            "pods": self.pods,
        }

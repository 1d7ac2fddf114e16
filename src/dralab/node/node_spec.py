"""The specification of a node: its name, amounts, labels and taints."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The specification of a node; quantities are texts."""

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

    def node(self) -> dict[str, Any]:
        """Return the Node that its kubelet creates if it does not exist."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
            **self.labels,
        }
        metadata = {"name": self.name, "labels": labels, "annotations": dict(self.annotations)}
        taints = {"taints": [dict(taint) for taint in self.taints]} if self.taints else {}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": taints}

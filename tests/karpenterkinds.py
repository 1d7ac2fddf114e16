"""Objects of Karpenter with its provider kwok: definitions, a NodeClass, NodePools, machine types."""

from builders import definition

# Kinds with the least schema that will do: what they default to is written out here.
KINDS = (
    ("karpenter.sh", "v1", "NodePool", "Cluster"),
    ("karpenter.sh", "v1", "NodeClaim", "Cluster"),
    ("karpenter.sh", "v1alpha1", "NodeOverlay", "Cluster"),
    ("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "Cluster"),
    ("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "Namespaced"),
)
READY = {"reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def definitions():
    """Return the definitions of all kinds."""
    return [definition(*each) for each in KINDS]


def only(key, value):
    return {"key": key, "operator": "In", "values": [value]}


def readiness(status):
    """Return the status of a NodeClass that is ready (True) or not (False)."""
    return {"status": {"conditions": [{**READY, "type": "Ready", "status": status}]}}


def node_class(registration="0s"):
    """Return the NodeClass; a node registers so long after it is created."""
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": registration},
    }  # fmt: skip


def pool(name="default", *, after="30s", budgets=({"nodes": "100%"},), shape="", **spec):
    """Return a NodePool; `shape` is its only machine type, `spec` has limits and a weight."""
    # Otherwise a replacement would have to be a spot machine.
    requirements = [only("karpenter.sh/capacity-type", "on-demand")]
    if shape:
        requirements.append(only("node.kubernetes.io/instance-type", shape))
    group = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after,
                "budgets": list(budgets),
            },
            "template": {
                "spec": {
                    "expireAfter": "Never", "requirements": requirements, "nodeClassRef": group
                }
            },
            **spec,
        },
    }  # fmt: skip


def instance_types(shapes):
    """Return what kwok's provider offers: `shapes` has (cpu, memory in Mi, price) by name."""
    return [
        {
            "name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": str(cpu), "memory": f"{memory}Mi"},
            "offerings": [
                {
                    "Price": price,
                    "Requirements": [
                        only("karpenter.sh/capacity-type", "on-demand"),
                        only("topology.kubernetes.io/zone", "zone-a"),
                    ],
                }
            ],
        }
        for name, (cpu, memory, price) in shapes.items()
    ]  # fmt: skip

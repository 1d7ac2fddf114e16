"""A cluster whose autoscaler adds and removes nodes, on a clock that tests move."""

from contextlib import contextmanager

import yaml

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from dralab.runtime.cluster_clock import ClusterClock
from dralab.runtime.resources import CONFIG_MAPS, EVENTS, NODES, PODS, SLICES
from dralab.simulation.live.options import source_of
from dralab.simulation.live.part import PoolAutoscaler

CONFIG = {
    "apiVersion": "v1alpha1",
    "readNodesFrom": "configmap",
    "nodegroups": {"fromNodeLabelKey": "kwok-nodegroup"},
    "nodes": {"skipTaint": True},
    "configmap": {"name": "kwok-provider-templates"},
}


class AutoscaledLab:
    """A running cluster, and what a user would look at."""

    def __init__(self, cluster, clock):
        self.cluster = cluster
        self.client = cluster.client
        self.clock = clock

    def wait(self, seconds):
        """Let time pass, then give what happens without time another moment."""
        self.clock.advance(seconds)
        return self

    def nodes(self):
        return sorted(node["metadata"]["name"] for node in self.client.list(NODES).items)

    def node(self, name):
        return self.client.get(NODES, name)

    def slices(self):
        return sorted(item["metadata"]["name"] for item in self.client.list(SLICES).items)

    def places(self):
        """The node of each pod, by name; None where it waits."""
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName")
            for pod in self.client.list(PODS).items
        }

    def events(self, reason, *, of_claims=False):
        """The messages of a reason, by the name of their object; those of NodeClaims apart."""
        return {
            event["involvedObject"]["name"]: event["message"]
            for event in self.client.list(EVENTS).items
            if event["reason"] == reason
            and (event["involvedObject"]["kind"] == "NodeClaim") == of_claims
        }

    def config_map(self, name, key, content, namespace="kube-system"):
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        body = {"metadata": {"name": name}, "data": {key: text}}
        self.client.create(CONFIG_MAPS, body, namespace)

    def groups(self, *objects, config=CONFIG):
        """Describe node groups as the provider kwok of cluster-autoscaler reads them."""
        self.config_map("kwok-provider-templates", "templates", yaml.safe_dump_all(objects))
        self.config_map("kwok-provider-config", "config", config)


@contextmanager
def autoscaled(name, file=None, *, data=":memory:"):
    """Run a cluster with an autoscaler; nothing happens until its clock is moved."""
    clock = ClusterClock("2026-01-01T00:00:00Z", running=False)
    nodes = Nodes(NodeOptions(nodes=0))
    parts = [ControlPlane(), nodes, PoolAutoscaler(source_of(name, file), nodes)]
    options = Options(data=data, authorization=("Node", "RBAC"))
    with Cluster(options, components=parts, clock=clock, seed=1) as cluster:
        yield AutoscaledLab(cluster, clock)

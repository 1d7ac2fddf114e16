"""The range of a node's pods, `spec.podCIDR`: given to the node by its kubelet, and routed."""

import logging

from dralab.node.network.addresses import RangeError
from dralab.node.network.sandbox import PodNetwork, SandboxError
from dralab.runtime.client import Client
from dralab.runtime.resources import NODES
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)


def with_pod_range(client: Client, node: JsonDict, network: PodNetwork, reader: Client) -> JsonDict:
    """Return a node that has a range, to which its network leads from now on.

    In a cluster of many machines a controller gives the ranges; here they are this process's own.
    Without one, pods wait, and the reason is logged. `reader` may read all nodes; `client` is the
    node's own.
    """
    try:
        found = network.pod_cidr(node, reader.list(NODES).items)
        if not node["spec"].get("podCIDR"):
            spec = {"podCIDR": found, "podCIDRs": [found]}
            node = client.patch(NODES, node["metadata"]["name"], {"spec": spec})
        network.route(found)
    except (RangeError, SandboxError) as error:
        logger.warning("node %s: its pods have no network: %s", node["metadata"]["name"], error)
    return node

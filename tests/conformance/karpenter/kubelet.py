"""The kubelet of nodes that come: it reports them ready."""

from dralab.objects.metadata import key_of
from dralab.runtime.resources import NODES

READY = {"type": "Ready", "status": "True", "reason": "Up", "message": "up"}


class Kubelet:
    def __init__(self, manager):
        self.client = manager.client
        self.nodes = manager.cache(NODES)
        self.queue = manager.queue("nodes", self.reconcile)
        self.nodes.subscribe(lambda old, new: self.queue.add(key_of(new or old)))

    def reconcile(self, key):
        node = self.nodes.get(key)
        if node is None or (node.get("status") or {}).get("conditions"):
            return
        self.client.patch(
            NODES, key.name, {"status": {"conditions": [READY]}}, subresource="status"
        )

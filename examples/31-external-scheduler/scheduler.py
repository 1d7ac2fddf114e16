"""A scheduler in twenty lines, with the official client: first node with enough CPU."""

from kubernetes import client, config, watch
from kubernetes.utils import parse_quantity

config.load_kube_config()
api = client.CoreV1Api()
free = {n.metadata.name: parse_quantity(n.status.allocatable["cpu"]) for n in api.list_node().items}
waiting, held = {}, {}
for event in watch.Watch().stream(api.list_pod_for_all_namespaces):
    pod = event["object"]
    key = (pod.metadata.namespace, pod.metadata.name)
    cpu = sum(
        parse_quantity((c.resources.requests or {}).get("cpu", "0")) for c in pod.spec.containers
    )
    if pod.spec.node_name is None and pod.status.phase == "Pending":
        waiting[key] = cpu
    elif pod.status.phase in ("Succeeded", "Failed") and key in held:
        node, cpu = held.pop(key)
        free[node] += cpu
    for (namespace, name), cpu in list(waiting.items()):
        node = next((n for n, left in free.items() if left >= cpu), None)
        if node:
            target = client.V1ObjectReference(kind="Node", name=node, api_version="v1")
            body = client.V1Binding(metadata=client.V1ObjectMeta(name=name), target=target)
            api.create_namespaced_binding(namespace, body, _preload_content=False)
            free[node] -= cpu
            held[namespace, name] = (node, waiting.pop((namespace, name)))

"""What kr8s does with a cluster; prints the name of each part that went well."""

import sys
import threading
import time

import kr8s
from kr8s.objects import ConfigMap, Deployment, Pod

PATIENCE = 20
SPEC = {"containers": [{"name": "c", "image": "registry.example/box:1"}]}


def pod(api):
    box = Pod({"metadata": {"name": "box", "labels": {"app": "box"}}, "spec": SPEC}, api=api)
    box.create()
    assert box.exists()
    box.label({"x": "y"})
    box.annotate({"note": "hello"})
    box.refresh()
    assert box.labels == {"app": "box", "x": "y"}
    assert [found.name for found in api.get("pods", label_selector={"x": "y"})] == ["box"]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    box.patch(ready, subresource="status")
    box.wait("condition=Ready", timeout=PATIENCE)
    box.delete(grace_period=0)
    box.wait("delete", timeout=PATIENCE)


def settings(api):
    body = {"metadata": {"name": "settings"}, "data": {"a": "b"}}
    ConfigMap(body, api=api, namespace="default").create()
    found = ConfigMap.get("settings", api=api, namespace="default")
    assert found.raw["data"] == {"a": "b"}


def deployment(api):
    labels = {"a": "b"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": SPEC},
    }
    web = Deployment({"metadata": {"name": "web"}, "spec": spec}, api=api, namespace="default")
    web.create()
    web.patch({"spec": {"replicas": 3}})
    assert web.raw["spec"]["replicas"] == 3
    assert web.raw["spec"]["strategy"]["type"] == "RollingUpdate"


def watch(api):
    def later():
        time.sleep(0.3)
        other = kr8s.api(kubeconfig=sys.argv[1])
        ConfigMap({"metadata": {"name": "late"}}, api=other, namespace="default").create()

    worker = threading.Thread(target=later)
    worker.start()
    for type_, found in api.watch("configmaps", namespace="default"):
        assert type_ == "ADDED"
        if found.name == "late":
            break
    worker.join()


if __name__ == "__main__":
    client = kr8s.api(kubeconfig=sys.argv[1])
    assert client.version()["gitVersion"].startswith("v1.")
    for part in (pod, settings, deployment, watch):
        part(client)
        sys.stdout.write(f"{part.__name__}\n")

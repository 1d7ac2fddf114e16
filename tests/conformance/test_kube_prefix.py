"""What a real kube-apiserver has stored in etcd is read as it showed it."""

import json
import ssl
import time
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from benchmarks import kube

from dralab.apiserver.storage.etcd import EtcdAddress
from dralab.apiserver.storage.etcd.revisions import revision_of
from dralab.cluster import Cluster, Options
from etcds import Etcd

pytestmark = pytest.mark.conformance

NAMESPACED = "namespaces/default"
SPEC: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}]}
LABELS = {"app": "web"}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
OBJECTS: dict[str, dict[str, Any]] = {
    f"/api/v1/{NAMESPACED}/configmaps": {"data": {"a": "b"}},
    f"/api/v1/{NAMESPACED}/secrets": {"data": {"a": "Yg=="}},
    f"/api/v1/{NAMESPACED}/pods": {"spec": SPEC},
    "/api/v1/nodes": {"status": {"capacity": {"cpu": "4"}}},
    f"/apis/apps/v1/{NAMESPACED}/deployments": {
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": SPEC},
        }
    },
    "/apis/resource.k8s.io/v1/deviceclasses": {
        "spec": {"selectors": [{"cel": {"expression": "true"}}]}
    },
    "/apis/resource.k8s.io/v1/resourceslices": {
        "spec": {
            "driver": "d.example.com",
            "nodeName": "x",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "d0",
                    "attributes": {"a": {"int": 1}, "v": {"version": "1.2.3"}},
                    "capacity": {"memory": {"value": "1Gi"}},
                }
            ],
        }
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": [
                {
                    "name": "v1", "served": True, "storage": True,
                    "schema": {"openAPIV3Schema": ANY},
                }
            ],
        },
    },
    f"/apis/example.com/v1/{NAMESPACED}/foos": {
        "apiVersion": "example.com/v1", "kind": "Foo", "spec": {"x": 1},
    },
}  # fmt: skip


def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    host = url.partition("//")[2]
    if url.startswith("https"):
        insecure = ssl._create_unverified_context()  # noqa: S323 - its own certificate, on loopback
        connection: HTTPConnection = HTTPSConnection(host, context=insecure, timeout=60)
    else:
        connection = HTTPConnection(host, timeout=60)
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {kube.TOKEN}"}
    connection.request(method, path, None if body is None else json.dumps(body), head)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer.status, json.loads(found) if found[:1] == b"{" else found


def test_the_prefix_of_a_kube_apiserver_is_read_as_it_shows_it(tmp_path: Path) -> None:
    program = kube.program()
    if program is None:
        pytest.skip("no kube-apiserver: neither DRALAB_KUBE_APISERVER nor the PATH has one")
    with Etcd(tmp_path) as etcd:
        real = kube.KubeApiserver(program, tmp_path / "kube", etcd.url.replace("etcd:", "http:"))
        try:
            for path, value in OBJECTS.items():
                body = {**value, "metadata": value.get("metadata", {"name": "x"})}
                for _ in range(100):
                    status, answer = ask(real.url, "POST", path, body)
                    if status != 404:
                        break
                    time.sleep(0.1)
                assert status == 201, answer
            paths = [
                f"{path}/{value.get('metadata', {'name': 'x'})['name']}"
                for path, value in OBJECTS.items()
            ]
            paths += [
                f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"
                for name in ("admin", "view")
            ]
            theirs = {path: ask(real.url, "GET", path) for path in paths}
        finally:
            real.stop()
        with Cluster(Options(store=EtcdAddress.read(etcd.url, prefix="/kube"))) as cluster:
            for path, answer in theirs.items():
                status, found = ask(cluster.url, "GET", path)
                # Writes of one transaction have different versions here: etcd's revision and more.
                version = found["metadata"]["resourceVersion"]
                found["metadata"]["resourceVersion"] = str(revision_of(int(version)))
                assert (status, found) == answer

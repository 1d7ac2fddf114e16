"""Flux's kustomize-controller: what an artifact holds is applied, kept, and pruned.

The test stands for the source-controller: it serves the artifact and says so in the GitRepository.
"""

import functools
import hashlib
import http.server
import io
import tarfile
import threading

import pytest
import yaml

from dralab.runtime.client import Resource
from dralab.runtime.resources import CONFIG_MAPS, DEPLOYMENTS
from operatorlab import NAMESPACE, free_port, holds, names, patch, running, there
from waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=2)]
SOURCES = "github.com/fluxcd/source-controller", "v1.9.6"
REPOSITORIES = Resource("source.toolkit.fluxcd.io", "v1", "gitrepositories")
KUSTOMIZATIONS = Resource("kustomize.toolkit.fluxcd.io", "v1", "kustomizations")
SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"greeting": "hello ${who}"},
}
LABELS = {"app": "web"}
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "main", "image": "nginx"}]},
        },
    },
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, *_):
        pass


@pytest.fixture
def published(tmp_path, client):
    """Publish a revision of a repository, as the source-controller does: files by their names."""
    served = tmp_path / "served"
    served.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=served)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def publish(revision, files):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as content:
            for name, objects in files.items():
                data = yaml.safe_dump_all(objects).encode()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                content.addfile(member, io.BytesIO(data))
        (served / f"{revision}.tar.gz").write_bytes(archive.getvalue())
        artifact = {
            "digest": f"sha256:{hashlib.sha256(archive.getvalue()).hexdigest()}",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
            "path": f"{revision}.tar.gz",
            "revision": f"main@sha1:{revision}",
            "size": len(archive.getvalue()),
            "url": f"http://127.0.0.1:{server.server_port}/{revision}.tar.gz",
        }
        status = {"status": {"artifact": artifact}}
        client.patch(REPOSITORIES, "app", status, NAMESPACE, subresource="status")

    yield publish
    server.shutdown()
    server.server_close()


def kustomization(name, path, **more):
    source = {"kind": "GitRepository", "name": "app"}
    spec = {
        "interval": "1h",
        "retryInterval": "1s",
        "path": path,
        "prune": True,
        "sourceRef": source,
        "targetNamespace": NAMESPACE,
    }
    return {"metadata": {"name": name}, "spec": {**spec, **more}}


def ready(client, name, revision):
    """Whether a Kustomization is ready at a revision."""
    found = client.get(KUSTOMIZATIONS, name, NAMESPACE)
    applied = found.get("status", {}).get("lastAppliedRevision")
    return holds(found, "Ready") and applied == f"main@sha1:{revision}"


def test_a_repository_is_applied_kept_as_it_is_and_pruned(
    running_cluster, client, apply, start, operator, sources_of, published
):
    sources, program = operator("kustomize-controller")
    apply(sources / "config/crd/bases")
    apply(sources_of(*SOURCES) / "config/crd/bases")
    start(
        program,
        "--metrics-addr=0",
        f"--health-addr=127.0.0.1:{free_port()}",
        "--requeue-dependency=1s",
        RUNTIME_NAMESPACE=NAMESPACE,
    )
    spec = {"interval": "1h", "url": "https://example.com/app", "ref": {"branch": "main"}}
    client.create(REPOSITORIES, {"metadata": {"name": "app"}, "spec": spec}, NAMESPACE)
    published("a" * 40, {"config/settings.yaml": [SETTINGS], "web/web.yaml": [WEB]})
    who = {"substitute": {"who": "world"}}
    client.create(
        KUSTOMIZATIONS,
        kustomization("web", "./web", wait=True, timeout="1m", dependsOn=[{"name": "config"}]),
        NAMESPACE,
    )
    # It waits for what it depends on.
    until(lambda: "dependency" in str(client.get(KUSTOMIZATIONS, "web", NAMESPACE).get("status")))
    assert names(client, DEPLOYMENTS) == set()
    client.create(KUSTOMIZATIONS, kustomization("config", "./config", postBuild=who), NAMESPACE)
    until(lambda: ready(client, "config", "a" * 40) and ready(client, "web", "a" * 40))
    assert len(running(client)) == 2
    assert client.get(CONFIG_MAPS, "settings", NAMESPACE)["data"] == {"greeting": "hello world"}
    entries = client.get(KUSTOMIZATIONS, "web", NAMESPACE)["status"]["inventory"]["entries"]
    assert entries == [{"id": "default_web_apps_Deployment", "v": "v1"}]
    # A stranger's change is taken back, when the next reconciliation is asked for.
    patch(client, DEPLOYMENTS, "web", {"replicas": 5})
    asked = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}}
    client.patch(KUSTOMIZATIONS, "web", asked, NAMESPACE)
    until(lambda: client.get(DEPLOYMENTS, "web", NAMESPACE)["spec"]["replicas"] == 2)
    # What the next revision does not have is pruned; what it spoils is not applied.
    other = {**SETTINGS, "metadata": {"name": "other"}}
    wrong = {**WEB, "spec": {**WEB["spec"], "replicas": "two"}}
    published("b" * 40, {"config/settings.yaml": [other], "web/web.yaml": [wrong]})
    until(lambda: ready(client, "config", "b" * 40))
    assert there(client, CONFIG_MAPS, "settings") is None
    assert there(client, CONFIG_MAPS, "other") is not None
    until(lambda: "replicas" in message(client, "web"))
    assert client.get(DEPLOYMENTS, "web", NAMESPACE)["spec"]["replicas"] == 2
    client.delete(KUSTOMIZATIONS, "web", NAMESPACE)
    until(lambda: there(client, DEPLOYMENTS, "web") is None and running(client) == set())


def message(client, name):
    """What a Kustomization that is not ready says."""
    conditions = client.get(KUSTOMIZATIONS, name, NAMESPACE)["status"].get("conditions", ())
    return " ".join(
        c["message"] for c in conditions if (c["type"], c["status"]) == ("Ready", "False")
    )

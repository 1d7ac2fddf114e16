"""`kubectl get --watch`, which does not end by itself."""

import subprocess
import threading

import pytest

from dralab.runtime.client import Resource
from transcripts import environment_for, kubectls

CONFIG_MAPS = Resource("", "v1", "configmaps")
KUBECTLS = kubectls()[:1]
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl on the PATH, and DRALAB_KUBECTL names none"
    ),
]


@pytest.mark.parametrize("kubectl", KUBECTLS, ids=lambda path: path.name)
def test_get_watch_shows_each_change_as_it_happens(kubectl, cluster, tmp_path):
    environment = environment_for(kubectl, cluster.kubeconfig, tmp_path)
    client = cluster.client
    body = {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "1"}}
    client.create(CONFIG_MAPS, body, "default")
    watch = subprocess.Popen(
        [str(kubectl), "get", "configmaps", "-w", "--no-headers", "--output-watch-events"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(30, watch.kill)
    timer.start()
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:3] == ["ADDED", "a", "1"]
        found = client.get(CONFIG_MAPS, "a", "default")
        client.update(CONFIG_MAPS, {**found, "data": {"x": "1", "y": "2"}})
        assert watch.stdout.readline().split()[:3] == ["MODIFIED", "a", "2"]
        client.delete(CONFIG_MAPS, "a", "default")
        assert watch.stdout.readline().split()[:3] == ["DELETED", "a", "2"]
    finally:
        timer.cancel()
        watch.kill()
        watch.communicate()

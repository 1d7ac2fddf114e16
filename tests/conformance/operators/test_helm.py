"""The life of a Helm release: hooks, waits, upgrades, rollbacks, tests and failures."""

import json

import pytest
import yaml

from dralab.runtime.resources import CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS
from operatorlab import NAMESPACE, names

pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=2)]

VALUES = {"replicas": 1, "hook": "true", "test": "true", "node": "", "seconds": 2}
HOOK = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  annotations:
    helm.sh/hook: {when}
    helm.sh/hook-weight: "{weight}"
    helm.sh/hook-delete-policy: {policy}
spec:
  backoffLimit: 0
  template:
    spec: {{restartPolicy: Never, containers: [{{name: main, image: box, command: ["{command}"]}}]}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      {{- with .Values.node }}
      nodeSelector: {kubernetes.io/hostname: {{ . }}}
      {{- end }}
      containers: [{name: web, image: nginx}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: about}
data:
  revision: "{{ .Release.Revision }}"
  upgrade: "{{ .Release.IsUpgrade }}"
  nodes: "{{ len (lookup "v1" "Node" "" "").items }}"
---
apiVersion: batch/v1
kind: Job
metadata: {name: load-{{ .Release.Revision }}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: box, command: [sleep, "{{ .Values.seconds }}"]}]
"""
TEST = """
apiVersion: v1
kind: Pod
metadata:
  name: answers
  annotations: {helm.sh/hook: test, helm.sh/hook-delete-policy: before-hook-creation}
spec:
  restartPolicy: Never
  containers: [{name: main, image: box, command: ["{{ .Values.test }}"]}]
"""


@pytest.fixture
def chart(tmp_path):
    """A chart with a Deployment, a Job, hooks and a test."""
    folder = tmp_path / "web"
    (folder / "templates").mkdir(parents=True)
    about = {"apiVersion": "v2", "name": "web", "version": "1.0.0"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    (folder / "values.yaml").write_text(yaml.safe_dump(VALUES))
    before = HOOK.format(
        name="first",
        when="pre-install,pre-upgrade",
        weight=-1,
        policy="before-hook-creation",
        command="{{ .Values.hook }}",
    )
    after = HOOK.format(
        name="last", when="post-install", weight=1, policy="hook-succeeded", command="true"
    )
    for name, text in {"main": DEPLOYMENT, "before": before, "after": after, "test": TEST}.items():
        (folder / "templates" / f"{name}.yaml").write_text(text)
    return str(folder)


@pytest.fixture
def release(helm, chart):
    """Run a command of helm about the one release; it must end as expected."""

    def release(verb, *words, fails=""):
        rest = [chart] if verb in {"install", "upgrade"} else []
        done = helm(verb, "web", *rest, *words)
        if fails:
            assert done.returncode != 0, done.stdout
            assert fails in done.stderr
        else:
            assert done.returncode == 0, done.stderr
        return done.stdout

    return release


def history(release):
    """The status of each revision."""
    return [each["status"] for each in json.loads(release("history", "-o", "json"))]


def about(client):
    return client.get(CONFIG_MAPS, "about", NAMESPACE)["data"]


def test_a_release_is_installed_upgraded_rolled_back_tested_and_removed(
    running_cluster, client, release
):
    release("install", "--wait", "--wait-for-jobs", "--timeout=2m")
    assert about(client) == {"revision": "1", "upgrade": "false", "nodes": "2"}
    # The last hook is gone, as it succeeded; what is waited for has ended, the first hook first.
    assert names(client, JOBS) == {"first", "load-1"}
    ended = {
        job["metadata"]["name"]: job["status"]["completionTime"]
        for job in client.list(JOBS, NAMESPACE).items
    }
    assert (
        ended["first"] <= client.get(DEPLOYMENTS, "web", NAMESPACE)["metadata"]["creationTimestamp"]
    )
    old = client.get(JOBS, "first", NAMESPACE)["metadata"]["uid"]
    release("upgrade", "--set=replicas=3", "--wait", "--timeout=2m")
    assert client.get(DEPLOYMENTS, "web", NAMESPACE)["status"]["readyReplicas"] == 3
    assert client.get(JOBS, "first", NAMESPACE)["metadata"]["uid"] != old
    assert about(client)["upgrade"] == "true"
    release("rollback", "1", "--wait", "--timeout=2m")
    assert client.get(DEPLOYMENTS, "web", NAMESPACE)["spec"]["replicas"] == 1
    assert about(client)["revision"] == "1"
    assert history(release) == ["superseded", "superseded", "deployed"]
    assert "Phase:          Succeeded" in release("test", "--timeout=2m")
    assert client.get(PODS, "answers", NAMESPACE)["status"]["phase"] == "Succeeded"
    release("upgrade", "--set=test=false", "--wait", "--timeout=2m")
    release("test", "--timeout=2m", fails="pod answers failed")
    release("uninstall", "--wait", "--timeout=2m")
    assert names(client, DEPLOYMENTS) == set()
    # Hooks are no part of a release.
    assert names(client, JOBS) == {"first"}
    release("status", fails="release: not found")


def test_what_fails_is_undone_where_that_is_asked_for(running_cluster, client, release):
    release(
        "install",
        "--set=hook=false",
        "--timeout=2m",
        fails="job first failed: BackoffLimitExceeded",
    )
    assert history(release) == ["failed"]
    release("uninstall")
    release("install", "--set=node=nowhere", "--atomic", "--timeout=5s", fails="context deadline")
    release("status", fails="release: not found")
    assert names(client, DEPLOYMENTS) == set()
    release("install", "--wait", "--timeout=2m")
    release(
        "upgrade",
        "--set=node=nowhere",
        "--atomic",
        "--timeout=20s",
        fails="has been rolled back due to atomic being set",
    )
    assert history(release) == ["superseded", "failed", "deployed"]
    web = client.get(DEPLOYMENTS, "web", NAMESPACE)
    assert "nodeSelector" not in web["spec"]["template"]["spec"]
    assert web["status"]["readyReplicas"] == 1

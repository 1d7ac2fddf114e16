"""`--kubeconfig` on commands that answer questions: a cluster is read, and never changed."""

import re
from pathlib import Path

import orjson
import pytest
import yaml
from click.testing import CliRunner

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.apiserver.access.audit.policy import AuditPolicy
from dralab.apiserver.access.authentication.settings import AuthenticationFlags
from dralab.apiserver.http.auditing import AuditSettings
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.components.roles import CLUSTER_BINDINGS, GROUP
from dralab.runtime.client import amend
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import CLAIMS, CLASSES, CLUSTER_ROLES, NODES, PODS, SLICES

GUIDES = Path(__file__).parents[2] / "docs/guides"
EVERYTHING = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
QUESTIONS = (["explain"], ["explain", "late"], ["allocate"], ["allocate", "-o", "json"])


class Requests:
    """A sink of the audit log: what came over HTTP."""

    def __init__(self):
        self.events = []

    def write(self, line):
        self.events.append(orjson.loads(line))

    def close(self):
        """Nothing to do."""


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def fill(client):
    """One node with two devices, one of them held by a running pod; two pods wait."""
    client.create(NODES, worker("node-1"))
    client.patch(NODES, "node-1", {"spec": {"taints": None}})
    for item in pool("gpus", device("d0"), device("d1"), node="node-1"):
        client.create(SLICES, item)
    client.create(CLASSES, device_class("gpu"))
    for name in ("held", "late-gpu", "early-gpu"):
        client.create(CLAIMS, claim(name, request("r0", "gpu")), "default")
    pods = [
        pod("early", claims={"gpu": "early-gpu"}),
        pod("late", claims={"gpu": "late-gpu"}),
        pod("runs", claims={"gpu": "held"}, nodeName="node-1"),
    ]
    for item in pods:
        client.create(PODS, item, "default")
    result = {"request": "r0", "driver": "gpu.example.com", "pool": "gpus", "device": "d0"}

    def give(found):
        found["status"] = {"allocation": {"devices": {"results": [result]}}}
        return True

    amend(client, CLAIMS, client.get(CLAIMS, "held", "default"), give, subresource="status")


@pytest.fixture(scope="module")
def requests():
    return Requests()


@pytest.fixture(scope="module")
def cluster(requests):
    audit = AuditSettings(policy=AuditPolicy.read(EVERYTHING), sink=requests)
    with Cluster(Options(audit=lambda: audit)) as cluster:
        fill(cluster.client)
        yield cluster


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_a_question_sends_nothing_but_get_and_list(cluster, requests, question):
    requests.events.clear()
    before = cluster.server.store.revision
    result = run(*question, "--kubeconfig", str(cluster.kubeconfig))
    assert result.exit_code == 1, result.output
    assert {event["verb"] for event in requests.events} == {"list"}
    assert cluster.server.store.revision == before


@pytest.mark.parametrize(("pod", "code"), [("early", 0), ("runs", 2)])
def test_nothing_is_changed_where_no_pod_has_to_move(cluster, requests, pod, code):
    requests.events.clear()
    source = ("--kubeconfig", str(cluster.kubeconfig))
    found = run("plan", "moves", "--for", f"default/{pod}", "--apply", *source)
    assert found.exit_code == code, found.output
    told = "Nothing was changed: no pod is to be moved." if code == 0 else "runs on node-1"
    assert told in found.output
    assert {event["verb"] for event in requests.events} == {"list"}


def test_who_came_first_gets_the_last_device_and_who_runs_does_not_wait(cluster):
    result = run("allocate", "--kubeconfig", str(cluster.kubeconfig))
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1][:6] == ["default", "early", "early-gpu", "node-1", "r0", "d1"]
    assert rows[2][:4] == ["default", "late", "late-gpu", "-"]
    assert not any(row[1:2] == ["runs"] for row in rows)


def test_files_count_as_applied_to_the_cluster(cluster, tmp_path):
    file = tmp_path / "more.json"
    more = pool("gpus", device("d0"), device("d1"), device("d2"), node="node-1")[0]
    cordoned = worker("node-1") | {"spec": {"unschedulable": True}}
    file.write_bytes(orjson.dumps({"kind": "List", "apiVersion": "v1", "items": [more]}))
    arguments = ["explain", "late", "--kubeconfig", str(cluster.kubeconfig), "-f", str(file)]
    assert run(*arguments).exit_code == 0
    file.write_bytes(orjson.dumps(cordoned))
    result = run(*arguments)
    assert result.exit_code == 1
    assert "1 node(s) were unschedulable" in result.stdout


def test_another_context_is_another_cluster(cluster):
    result = run("explain", "--kubeconfig", str(cluster.kubeconfig), "--context", "nowhere")
    assert result.exit_code == 2
    assert "no entry 'nowhere'; known: dralab" in result.stderr


def test_what_a_newer_cluster_says_beyond_this_api_is_noted(cluster, monkeypatch):
    def newer(client, resource, namespace=""):
        found = listing(client, resource, namespace)
        if resource == CLAIMS:
            for item in found.items:
                item["spec"]["devices"]["requests"][0]["exactly"]["teleports"] = True
        return found

    listing = RemoteClient.list
    monkeypatch.setattr(RemoteClient, "list", newer)
    result = run("explain", "early", "--kubeconfig", str(cluster.kubeconfig))
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "ResourceClaim: unknown field spec.devices.requests[].exactly.teleports (3 times) is "
        "ignored: a newer Kubernetes wrote it"
    ]


def test_older_generations_are_read_from_the_cluster_and_todays_pods_are_not_theirs(cluster):
    result = run("explain", "--api", "k8srm", "--kubeconfig", str(cluster.kubeconfig))
    assert (result.stdout, result.exit_code) == ("", 0)
    assert result.stderr == "nothing in the input asks for devices\n"


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_a_cluster_that_does_not_answer_is_one_line(question):
    result = run(*question, "--server", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: http://127.0.0.1:1: cannot list nodes: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_list_that_is_forbidden_is_one_line(tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("secret,jane,7\n")
    flags = AuthenticationFlags(token_auth_file=tokens)
    options = Options(tls=True, authentication=flags, authorization=("RBAC",))
    with Cluster(options) as cluster:
        file = tmp_path / "jane.kubeconfig"
        file.write_text(cluster.kubeconfig.read_text().replace(cluster.token, "secret"))
        result = run("explain", "--kubeconfig", str(file))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert 'cannot list nodes: nodes is forbidden: User "jane" cannot list' in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_role_of_the_guide_is_enough(tmp_path):
    guide = (GUIDES / "why-pending.md").read_text()
    (text,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    role = yaml.safe_load(text)
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("secret,jane,7\n")
    flags = AuthenticationFlags(token_auth_file=tokens)
    options = Options(tls=True, authentication=flags, authorization=("RBAC",))
    with Cluster(options) as cluster:
        fill(cluster.client)
        cluster.client.create(CLUSTER_ROLES, role)
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role["metadata"]["name"]},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "jane"}],
        }
        cluster.client.create(CLUSTER_BINDINGS, binding)
        file = tmp_path / "jane.kubeconfig"
        file.write_text(cluster.kubeconfig.read_text().replace(cluster.token, "secret"))
        assert run("explain", "early", "--kubeconfig", str(file)).exit_code == 0


def test_nothing_to_read_is_a_usage_error_and_the_environment_names_no_cluster(cluster):
    found = CliRunner().invoke(main, ["explain"], env={"KUBECONFIG": str(cluster.kubeconfig)})
    assert found.exit_code == 2
    assert (
        "give files with -f (- is standard input), or a cluster with --kubeconfig" in found.stderr
    )

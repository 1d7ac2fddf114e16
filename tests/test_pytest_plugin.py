"""The fixtures of the pytest plugin, and what the clock of a running cluster moves."""

import sys
import urllib.error
import urllib.request

import pytest

from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.cluster_clock import ClusterClock
from dralab.runtime.kubeconfig import read
from dralab.runtime.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SLICES,
)

pytest_plugins = ["pytester"]

START = "2026-01-01T00:00:30Z"
STILL = pytest.mark.dralab(clock="stopped", start=START)


def sleeping(seconds):
    container = {"name": "main", "image": "box", "command": ["sleep", str(seconds)]}
    return {"restartPolicy": "Never", "containers": [container]}


def phases(client):
    return {p["metadata"]["name"]: p["status"]["phase"] for p in client.list(PODS).items}


@STILL
def test_a_pod_runs_and_ends_at_the_time_of_the_clock(client, clock):
    client.create(PODS, {"metadata": {"name": "hour"}, "spec": sleeping(3600)}, "default")
    clock.settle()
    assert (clock.time, phases(client)) == (START, {"hour": "Running"})
    clock.advance("59m")
    assert phases(client) == {"hour": "Running"}
    clock.advance("1m")
    assert phases(client) == {"hour": "Succeeded"}
    [status] = client.get(PODS, "hour", "default")["status"]["containerStatuses"]
    ended = status["state"]["terminated"]
    assert (ended["startedAt"], ended["finishedAt"]) == (START, "2026-01-01T01:00:30Z")


@STILL
def test_a_cron_job_starts_its_jobs_while_the_clock_is_moved(client, clock):
    template = {"spec": {"template": {"spec": sleeping(90)}}}
    spec = {"schedule": "*/20 * * * *", "jobTemplate": template}
    client.create(CRON_JOBS, {"metadata": {"name": "cron"}, "spec": spec}, "default")
    clock.advance("1h")
    found = [
        (job["status"]["startTime"][11:], job["status"].get("completionTime", "")[11:])
        for job in client.list(JOBS).items
    ]
    assert sorted(found) == [
        ("00:20:00Z", "00:21:30Z"),
        ("00:40:00Z", "00:41:30Z"),
        ("01:00:00Z", ""),
    ]


@STILL
def test_nodes_renew_their_leases_and_events_are_forgotten(client, clock):
    client.create(PODS, {"metadata": {"name": "short"}, "spec": sleeping(1)}, "default")
    clock.advance("10s")
    assert any(e["reason"] == "Scheduled" for e in client.list(EVENTS, "default").items)
    clock.advance("2h")
    renewed = client.get(LEASES, "node-0", "kube-node-lease")["spec"]["renewTime"]
    assert renewed[:17] == "2026-01-01T02:00:"
    assert client.list(EVENTS, "default").items == []


@STILL
@pytest.mark.dralab(without=["nodes"])
def test_a_node_that_says_nothing_becomes_unknown(client, clock):
    client.create(NODES, {"metadata": {"name": "quiet"}})
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": clock.time}
    status = {"status": {"conditions": [ready]}}
    client.patch(NODES, "quiet", status, subresource="status")
    lease = {"metadata": {"name": "quiet"}, "spec": {"renewTime": "2026-01-01T00:00:30.000000Z"}}
    client.create(LEASES, lease, "kube-node-lease")
    clock.advance("49s")
    assert ready_of(client) == "True"
    clock.advance("1s")
    assert ready_of(client) == "Unknown"


def ready_of(client):
    conditions = client.get(NODES, "quiet")["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == "Ready")


@STILL
@pytest.mark.dralab(tls=True)
def test_a_token_expires(running_cluster, client, clock):
    spec = {"spec": {"expirationSeconds": 600}}
    made = client.post(SERVICE_ACCOUNTS, "default", "token", spec, "default")
    assert made["status"]["expirationTimestamp"] == "2026-01-01T00:10:30Z"

    def answer():
        request = urllib.request.Request(f"{running_cluster.url}/api/v1/namespaces")
        request.add_header("Authorization", f"Bearer {made['status']['token']}")
        try:
            with urllib.request.urlopen(request, context=trusting(running_cluster)) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert answer() == 200
    clock.advance("11m")  # Go's libraries allow a minute more
    assert answer() == 200
    clock.advance("1s")
    assert answer() == 401


def trusting(cluster):
    import ssl

    return ssl.create_default_context(cadata=cluster.ca)


def test_the_usual_clock_runs(client, clock):
    before = clock.now()
    assert clock.now() > before - 1
    clock.advance("1h")
    assert clock.now() >= before + 3_600 * 10**9


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@STILL
async def test_the_clock_is_moved_from_a_coroutine(client, clock):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    await clock.advance_async("1s")
    assert client.get(DEPLOYMENTS, "web", "default")["status"]["availableReplicas"] == 2


CONTAINER = {"name": "main", "image": "box"}


@STILL
def test_the_clock_begins_again_with_each_test(clock):
    assert clock.time == START


@STILL
@pytest.mark.dralab(nodes=2)
def test_every_test_finds_the_nodes_ready(running_cluster, client):
    found = client.list(NODES).items
    assert [node["metadata"]["name"] for node in found] == ["node-0", "node-1"]
    assert all(node["status"]["conditions"][-1]["status"] == "True" for node in found)


@pytest.mark.dralab(drivers=["gpu"], tls=True, authorization=["Node", "RBAC"])
def test_drivers_have_published_their_devices_when_a_test_begins(running_cluster, client):
    assert [each["spec"]["nodeName"] for each in client.list(SLICES).items] == ["node-0"]


@pytest.mark.dralab(seed=7)
def test_the_kubeconfig_and_the_client_are_those_of_the_cluster_asked_for(
    cluster, kubeconfig, client
):
    assert read(kubeconfig).server == cluster.url
    client.create(NAMESPACES, {"metadata": {"name": "seen"}})
    assert cluster.client.get(NAMESPACES, "seen")["metadata"]["name"] == "seen"
    with pytest.raises(ApiError):
        client.get(NODES, "node-0")


HOOK = {
    "metadata": {"name": "hooks"},
    "webhooks": [
        {
            "name": "pods.example.com",
            "clientConfig": {"service": {"namespace": "hooks", "name": "mine", "path": "/pods"}},
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


@pytest.mark.dralab(services=["hooks/mine=127.0.0.1:9"])
def test_a_service_of_a_webhook_is_where_the_marker_says(cluster, client):
    resource = Resource(
        "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
    )
    client.create(resource, HOOK)
    with pytest.raises(ApiError, match=r"dial tcp 127\.0\.0\.1:9: connect: connection refused"):
        client.create(PODS, {"metadata": {"name": "one"}, "spec": sleeping(1)}, "default")


def test_an_engine_that_stays_busy_is_named():
    class Busy:
        name, put_in = "drums", 0

        def wait_idle(self, patience):
            raise TimeoutError(f"{self.name} is still busy after {patience:g} s")

        def wake(self):
            pass

    clock = ClusterClock("2026-01-01T00:00:00Z", running=False)
    clock.attach(Busy())
    with pytest.raises(TimeoutError, match="drums is still busy"):
        clock.advance("1m")


@pytest.mark.parametrize("wrong", ["soon", "-1h", -1, None, True])
def test_what_is_not_a_duration_is_refused(wrong):
    with pytest.raises(ValueError, match="is not a duration: write 90, 90s, 1h30m or 7d"):
        ClusterClock().advance(wrong)


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("node=2", "knows no 'node'; known: nodes, drivers"),
        ("3", "takes named arguments alone, not 3"),
        ("clock='slow'", "clock is one of running, stopped, not 'slow'"),
        ("start='noon'", "dralab: *noon*"),
        ("images=['a=b']", "images need the runtime `process`"),
        ("load_balancers='x'", "x"),
        ("services=['a/b=here']", "'a/b=here' must be NAMESPACE/NAME=HOST:PORT"),
        ("fleet='tiny'", "fleet has no shape 'tiny'; known: a100"),
        ("without=['etcd']", "unknown part 'etcd'; known: scheduler, controllers, nodes"),
    ],
)
def test_a_marker_that_says_what_cannot_be_fails_its_test(pytester, marker, words):
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.dralab({marker})
        def test_it(running_cluster):
            pass
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*".replace("[", "[[]")])


def test_options_say_what_all_tests_want(pytester):
    pytester.makepyfile("""
        import pytest

        def test_options(running_cluster):
            assert running_cluster.components[1].wanted.nodes == 3
            assert running_cluster.clock.time == "2030-01-01T00:00:00Z"

        @pytest.mark.dralab(nodes=2)
        def test_marker(running_cluster):
            assert running_cluster.components[1].wanted.nodes == 2

        seen = []

        @pytest.mark.parametrize("time", [1, 2])
        def test_servers(cluster, time):
            assert cluster.url not in seen or cluster not in seen
            seen.extend([cluster.url, cluster])
    """)
    words = "--dralab-nodes 3 --dralab-clock stopped --dralab-start 2030-01-01T00:00:00Z"
    given = [*words.split(), "--dralab-server", "test"]
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *given)
    result.assert_outcomes(passed=4)


@pytest.mark.conformance
def test_workers_have_servers_of_their_own(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile("""
        import os
        from pathlib import Path
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_urls(cluster, number):
            Path(f"url-{os.environ['PYTEST_XDIST_WORKER']}-{number}").write_text(cluster.url)
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2")
    result.assert_outcomes(passed=8)
    urls = {}
    for file in pytester.path.glob("url-*"):
        urls.setdefault(file.name.split("-")[1], set()).add(file.read_text())
    assert len(urls) == 2
    assert all(len(found) == 1 for found in urls.values())
    assert len(set.union(*urls.values())) == 2


def test_modules_of_dralab_are_imported_as_compiled_and_those_of_tests_rewritten():
    import dralab.cluster

    assert type(dralab.cluster.__loader__).__name__ == "SourceFileLoader"
    assert type(sys.modules[__name__].__loader__).__name__ == "AssertionRewritingHook"

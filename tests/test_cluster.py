import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.listening import AddressInUse, ServingError
from dralab.apiserver.storage import StorageUnavailable
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from waiting import until

CONFIGMAPS = Resource("", "v1", "configmaps")


def read(url: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return json.load(answer)


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def test_a_cluster_serves_what_its_client_writes() -> None:
    with Cluster() as cluster:
        cluster.client.create(CONFIGMAPS, config("a", x="1"), "default")
        found = read(f"{cluster.url}/api/v1/namespaces/default/configmaps/a")
        assert found["data"] == {"x": "1"}


def test_a_cluster_runs_on_the_loop_of_its_caller() -> None:
    async def main() -> Any:
        async with Cluster() as cluster:
            return await asyncio.to_thread(read, f"{cluster.url}/api/v1/namespaces")

    assert len(asyncio.run(main())["items"]) == 4


def test_two_clusters_do_not_know_each_other() -> None:
    with Cluster() as one, Cluster() as other:
        one.client.create(CONFIGMAPS, config("a"), "default")
        assert other.client.list(CONFIGMAPS).items == []


def test_the_same_seed_makes_the_same_objects() -> None:
    def uid() -> str:
        with Cluster(seed=7) as cluster:
            made = cluster.client.create(CONFIGMAPS, config("a"), "default")
            return str(made["metadata"]["uid"])

    assert uid() == uid()


def test_a_reset_cluster_is_empty_and_its_watches_end() -> None:
    with Cluster() as cluster:
        url, client = cluster.url, cluster.client
        client.create(CONFIGMAPS, config("a"), "default")
        watch = client.watch(CONFIGMAPS, revision=client.list(CONFIGMAPS).revision)
        cluster.reset()
        assert cluster.url == url
        assert cluster.client.list(CONFIGMAPS).items == []
        assert read(f"{url}/api/v1/configmaps")["items"] == []
        with pytest.raises(ApiError, match="shutting down") as ended:
            watch.next(timeout=0)
        assert ended.value.reason == "Expired"


def test_a_compacted_cluster_sends_watchers_to_list_again() -> None:
    with Cluster() as cluster:
        client = cluster.client
        old = client.list(CONFIGMAPS).revision
        client.create(CONFIGMAPS, config("a"), "default")
        cluster.compact()
        with pytest.raises(ApiError, match="too old resource version") as expired:
            client.watch(CONFIGMAPS, revision=old)
        assert expired.value.code == 410
        assert client.watch(CONFIGMAPS, revision=client.list(CONFIGMAPS).revision)


def test_parts_start_after_the_server_and_stop_before_it() -> None:
    told: list[str] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def start(self, cluster: Cluster) -> None:
            read(f"{cluster.url}/api/v1/namespaces")
            self.url = cluster.url
            told.append(f"start {self.name}")

        def stop(self) -> None:
            read(f"{self.url}/api/v1/namespaces")
            told.append(f"stop {self.name}")

    with Cluster(components=[Noting("scheduler"), Noting("nodes")]) as cluster:
        cluster.reset()
    assert told == ["start scheduler", "start nodes", "stop nodes", "stop scheduler"] * 2


def test_a_part_that_cannot_start_takes_the_cluster_down() -> None:
    class Broken:
        def start(self, cluster: Cluster) -> None:
            raise ValueError("no")

        def stop(self) -> None: ...

    cluster = Cluster(components=[Broken()])
    with pytest.raises(ValueError, match="no"):
        cluster.__enter__()
    with pytest.raises(RuntimeError, match="is not running"):
        assert cluster.url


def test_objects_are_there_after_a_restart(tmp_path: Path) -> None:
    options = Options(data=tmp_path / "data")
    with Cluster(options) as cluster:
        made = cluster.client.create(CONFIGMAPS, config("a"), "default")
    with Cluster(options) as cluster:
        assert cluster.client.get(CONFIGMAPS, "a", "default") == made
        with pytest.raises(StorageUnavailable, match="in use"):
            Cluster(options).__enter__()


def test_a_taken_port_is_told_where_the_cluster_is_entered() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(AddressInUse, match="is in use"):
            Cluster(Options(port=taken.getsockname()[1])).__enter__()


def test_the_kubeconfig_names_the_cluster_and_goes_with_it() -> None:
    with Cluster() as cluster:
        file = cluster.kubeconfig
        document = yaml.safe_load(file.read_text())
        assert document["clusters"][0]["cluster"]["server"] == cluster.url
        assert file.stat().st_mode & 0o077 == 0
    assert not file.exists()


def test_with_tls_clients_need_the_ca_and_the_token(tmp_path: Path) -> None:
    options = Options(tls=True, data=tmp_path)
    with Cluster(options) as cluster:
        assert cluster.url.startswith("https://")
        document = yaml.safe_load(cluster.kubeconfig.read_text())
        token = document["users"][0]["user"]["token"]
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))

        def status(**headers: str) -> int:
            request = urllib.request.Request(f"{cluster.url}/api/v1/nodes", headers=headers)
            try:
                with urllib.request.urlopen(request, context=trusted) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        assert status(Authorization=f"Bearer {token}") == 200
        assert status(Authorization="Bearer wrong") == 401
        assert status() == 401
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            read(f"{cluster.url}/api/v1/nodes")
    with Cluster(options) as cluster:
        assert cluster.token == token, "kubeconfigs stay valid"


def test_the_fixtures_give_each_test_its_own_cluster(
    cluster: Cluster, client: LocalClient, kubeconfig: Path
) -> None:
    assert client.list(CONFIGMAPS).items == []
    client.create(CONFIGMAPS, config("mine"), "default")
    assert cluster.url in kubeconfig.read_text()


test_the_fixtures_give_each_test_its_own_cluster_again = (
    test_the_fixtures_give_each_test_its_own_cluster
)


def test_a_start_imports_nothing_that_can_wait() -> None:
    """Ready in 0.3 s is a promise; these cost more than a tenth of it each."""
    script = (
        "import sys\n"
        "from dralab.cluster import Cluster\n"
        "with Cluster():\n"
        "    print(*sorted(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=150
    )
    loaded = set(done.stdout.split())
    late = {
        "cryptography", "dralab.api.resource.rules", "dralab.apiserver.http.openapi",
        "dralab.apiserver.http.tables", "dralab.cel",
        "dralab.prototypes.k8srm.normalize", "numpy", "sqlite3", "yaml",
    }  # fmt: skip
    assert "dralab.apiserver.server" in loaded
    assert loaded & late == set()


def test_pods_find_the_authority_of_a_server_with_tls(tmp_path: Path) -> None:
    options = Options(tls=True, data=tmp_path)
    with Cluster(options, components=[ControlPlane(without=("scheduler",))]) as cluster:
        begins, bundle = "-----BEGIN CERTIFICATE-----", "kube-root-ca.crt"
        assert cluster.ca.startswith(begins)
        wanted = f"metadata.name={bundle}"
        found = until(
            lambda: cluster.client.list(CONFIGMAPS, "default", field_selector=wanted).items
        )
        assert [item["data"] for item in found] == [{"ca.crt": cluster.ca}]


def test_a_cluster_tells_when_it_has_answered_all_that_was_sent():
    with Cluster() as cluster:
        seen = []
        cluster.server.observers.append(lambda request, _: seen.append(request.path))
        told = threading.Event()
        with cluster.server.store.lock:  # the server waits for it with its first request
            sockets = [
                socket.create_connection(("127.0.0.1", int(cluster.url.rpartition(":")[2])))
                for _ in range(20)
            ]
            for number, one in enumerate(sockets):
                one.sendall(
                    b"GET /api/v1/namespaces/n%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % number
                )
            cluster.when_idle(lambda: (seen.append("idle"), told.set()))
        assert told.wait(10)
        assert len(seen) == 21
        assert seen[-1] == "idle"
        for one in sockets:
            one.close()
    with pytest.raises(RuntimeError, match="is not running"):
        cluster.when_idle(told.set)


def test_a_server_for_other_machines_needs_tls():
    for options in (Options(host="192.0.2.1"), Options(host="192.0.2.1", token="x")):
        with pytest.raises(ServingError, match=r"on the loopback, not on 192\.0\.2\.1"):
            Cluster(options).__enter__()


def test_a_kubeconfig_that_kubectl_could_not_use_is_not_written():
    with Cluster(Options(token="x")) as cluster, pytest.raises(ServingError, match="needs TLS"):
        cluster.kubeconfig  # noqa: B018


def test_the_token_that_is_given_is_the_only_one():
    with Cluster(Options(tls=True, token="mine")) as cluster:
        assert cluster.token == "mine"
        assert "    token: mine\n" in cluster.kubeconfig.read_text()
        authentication = cluster.server.application.authentication
        assert authentication.known("mine", ()).user.name == "admin"
        assert authentication.known("", ()) is None


def test_processes_of_pods_need_a_server_that_asks_for_a_token():
    nodes = Nodes(NodeOptions(nodes=1, runtime=PROCESS))
    with pytest.raises(ValueError, match="requires a token"):
        Cluster(components=[nodes]).__enter__()

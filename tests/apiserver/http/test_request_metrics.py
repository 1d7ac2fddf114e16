"""What `/metrics` tells about requests, by the names of a real server."""

import pytest

from admissions import MAPS, ask, config_map
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness
from dralab.values.exposition import histogram_lines, labels_text


@pytest.fixture
def server():
    return ApiServer(MemoryStore(), randomness=Randomness(1))


def metrics(server):
    text = server.handle(HttpRequest(method="GET", path="/metrics")).content.decode()
    assert text.endswith("\n")
    return [line for line in text.splitlines() if not line.startswith("#")]


def total(server, **labels):
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return [
        int(line.rpartition(" ")[2])
        for line in metrics(server)
        if line.startswith("apiserver_request_total{") and all(each in line for each in wanted)
    ]


def test_requests_are_counted_by_verb_resource_and_code(server):
    ask(server, "POST", MAPS, config_map())
    ask(server, "POST", MAPS, config_map())
    ask(server, "GET", MAPS)
    ask(server, "GET", f"{MAPS}/a")
    server.handle(HttpRequest(method="GET", path=MAPS, query="watch=1"))
    assert total(server, resource="configmaps", verb="POST", code=201, scope="namespace") == [1]
    assert total(server, resource="configmaps", verb="POST", code=409) == [1]
    assert total(server, resource="configmaps", verb="LIST", code=200) == [1]
    assert total(server, resource="configmaps", verb="GET", code=200, scope="resource") == [1]
    assert total(server, resource="configmaps", verb="WATCH", code=200) == [1]


def test_durations_and_sizes_are_histograms(server):
    ask(server, "GET", f"{MAPS}/none")
    lines = metrics(server)
    for name in ("apiserver_request_duration_seconds", "apiserver_response_sizes"):
        ours = [line for line in lines if line.startswith(name) and 'verb="GET"' in line]
        ours = [line for line in ours if 'resource="configmaps"' in line]
        (last,) = [line for line in ours if 'le="+Inf"' in line]
        (count,) = [line for line in ours if line.startswith(f"{name}_count")]
        assert last.rpartition(" ")[2] == count.rpartition(" ")[2] == "1"
    names = {line.partition("{")[0].partition(" ")[0] for line in lines}
    assert {"process_cpu_seconds_total", "apiserver_storage_objects"} <= names


def test_words_that_clients_make_up_are_not_kept(server):
    for number in range(3):
        server.handle(HttpRequest(method=f"M{number}", path=MAPS))
        server.handle(HttpRequest(method=f"M{number}", path="/version"))
    assert total(server, verb="M1") == []
    assert total(server, verb="other", resource="configmaps") == [3]


def test_a_histogram_adds_up():
    lines = list(histogram_lines("h", labels_text([("a", 'b"')]), (1.0, 2.0), [1, 2, 3], 9.5))
    assert lines == [
        'h_bucket{a="b\\"",le="1"} 1',
        'h_bucket{a="b\\"",le="2"} 3',
        'h_bucket{a="b\\"",le="+Inf"} 6',
        'h_sum{a="b\\""} 9.5',
        'h_count{a="b\\""} 6',
    ]


def test_a_series_is_there_once_though_some_of_its_requests_were_dry_runs(server):
    for query in ("", "dryRun=All"):
        server.handle(HttpRequest(method="DELETE", path=f"{MAPS}/none", query=query))
    names = [line.rpartition(" ")[0] for line in metrics(server) if "configmaps" in line]
    assert any(name.startswith("apiserver_request_sli_duration_seconds_count") for name in names)
    assert len(names) == len(set(names))

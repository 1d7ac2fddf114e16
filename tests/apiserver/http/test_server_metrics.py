"""What `/metrics` tells beside requests: admission, access, watches, lists, limits."""

import json
import re
import threading

import pytest

from admissions import MAPS, ask, config_map
from builders import SHARED
from dralab.apiserver.access.authentication.settings import AuthenticationSettings
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.users import User
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.metrics.families import ServerMetrics
from dralab.apiserver.metrics.meters import Counters, Histograms
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness

RECORDED = SHARED / "testdata/apiserver/metrics-v1.36.json"
SERIES = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")


@pytest.fixture
def server():
    return ApiServer(MemoryStore(), randomness=Randomness(1))


def page(server, **headers):
    request = HttpRequest(method="GET", path="/metrics", headers=headers)
    return server.handle(request).content.decode().splitlines()


def found(server, series, **labels):
    """Return the values of a series that has these labels."""
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    return [
        float(match[3])
        for line in page(server)
        if (match := SERIES.match(line))
        and match[1] == series
        and wanted <= set((match[2] or "").split(","))
    ]


def test_plugins_and_steps_of_admission_are_timed(server):
    ask(server, "POST", MAPS, config_map())
    plugins = "apiserver_admission_controller_admission_duration_seconds_count"
    named = {"name": "NamespaceLifecycle", "operation": "CREATE", "type": "admit"}
    before = found(server, plugins, **named, rejected="false")
    assert before[0] >= 1
    ask(server, "POST", MAPS.replace("default", "none"), config_map())
    assert found(server, plugins, **named, rejected="false") == before
    assert found(server, plugins, **named, rejected="true") == [1]
    steps = "apiserver_admission_step_admission_duration_seconds_count"
    assert found(server, steps, operation="CREATE", type="admit", rejected="true") == [1]
    assert found(server, steps, operation="CREATE", type="validate", rejected="false")[0] >= 1


def test_users_and_decisions_are_counted():
    tokens = TokenTable({"t0ken": User(name="jane", groups=())})
    settings = AuthenticationSettings(tokens=[tokens])
    server = ApiServer(MemoryStore(), authentication=settings, authorization=["RBAC"])
    jane = {"authorization": "Bearer t0ken"}
    admin = User(name="admin", groups=("system:masters",))
    for headers in (jane, {"authorization": "Bearer no"}, {}):
        server.handle(HttpRequest(method="GET", path="/api/v1/nodes", headers=headers))
    request = HttpRequest(method="GET", path="/metrics", user=admin)
    lines = server.handle(request).content.decode().splitlines()
    assert 'authentication_attempts{result="success"} 1' in lines
    assert 'authentication_attempts{result="failure"} 2' in lines
    assert 'authenticated_user_requests{username="other"} 1' in lines
    assert 'authorization_attempts_total{result="no-opinion"} 1' in lines


def test_events_of_watches_are_counted_with_their_sizes(server):
    request = HttpRequest(method="GET", path=MAPS, query="watch=1&resourceVersion=0")
    watches = [server.handle(request) for _ in range(2)]
    opened = [server.hub.open(each.watching, each.encoder) for each in watches]
    ask(server, "POST", MAPS, config_map())
    place = {"group": "", "resource": "configmaps", "version": "v1"}
    assert found(server, "apiserver_watch_events_total", **place) == [2]
    assert found(server, "apiserver_watch_events_sizes_count", **place) == [2]
    assert found(server, "apiserver_longrunning_requests", **place, scope="namespace") == [2]
    received = "apiserver_watch_cache_events_received_total"
    assert found(server, received, group="", resource="configmaps")[0] >= 1
    assert len(opened) == 2


def test_lists_and_objects_are_counted(server):
    ask(server, "POST", MAPS, config_map())
    before = found(server, "apiserver_storage_list_total", group="", resource="configmaps")
    ask(server, "GET", MAPS)
    place = {"group": "", "resource": "configmaps"}
    after = found(server, "apiserver_storage_list_total", **place)
    assert sum(after) == sum(before) + 1
    assert found(server, "apiserver_storage_list_returned_objects_total", **place)[0] >= 1
    assert found(server, "apiserver_resource_objects", **place)[0] >= 1
    assert found(server, "apiserver_current_inflight_requests", request_kind="readOnly") == [1]
    assert found(server, "apiserver_request_body_size_bytes_count", **place, verb="create") == [1]


def test_names_types_and_labels_are_those_of_a_real_server(server):
    if not RECORDED.exists():
        pytest.skip(f"{RECORDED} is not there")
    recorded = {each["name"]: each for each in json.loads(RECORDED.read_text())}
    request = HttpRequest(method="GET", path=MAPS, query="watch=1&resourceVersion=0")
    watch = server.handle(request)
    opened = server.hub.open(watch.watching, watch.encoder)
    ask(server, "POST", MAPS, config_map())
    lines = page(server)
    types = dict(line.split()[2:] for line in lines if line.startswith("# TYPE"))
    assert len([name for name in types if name in recorded]) >= 30
    for name, kind in types.items():
        assert kind == recorded.get(name, {"type": kind})["type"], name
    labels: dict[str, set[str]] = {}
    for line in lines:
        if match := SERIES.match(line):
            name = re.sub("_(bucket|sum|count)$", "", match[1])
            name = name if name in types else match[1]
            own = labels.setdefault(name, set())
            own |= set(re.findall(r'(\w+)="', match[2] or ""))
    for name, own in labels.items():
        if name in recorded:
            assert own >= set(recorded[name]["labels"]), name
    opened.close()


def test_without_labels_there_are_no_braces():
    counters, histograms = Counters("a_total", "A."), Histograms("b", "B.", (), (1.0,))
    counters.add(())
    histograms.add((), 2.0, times=2)
    assert list(counters.lines()) == ["# HELP a_total A.", "# TYPE a_total counter", "a_total 1"]
    assert list(histograms.lines())[2:] == [
        'b_bucket{le="1"} 0',
        'b_bucket{le="+Inf"} 2',
        "b_sum 4.0",
        "b_count 2",
    ]


def test_nothing_is_lost_or_counted_twice_between_threads():
    measured = ServerMetrics()

    def work():
        for _ in range(2_000):
            measured.dispatched_by("schema", "level")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (line,) = [line for line in measured.lines() if line.startswith(f"{measured.flows.name}{{")]
    assert line.endswith(" 8000")

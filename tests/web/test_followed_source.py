"""A cluster that is followed: listed once, then kept up to date by watches; what ends a watch."""

import orjson
import pytest

from builders import claim, device, pool, request, worker
from dralab.api.status import ApiError
from dralab.kernel.clock import ManualClock
from dralab.runtime.reading import COLLECTIONS, read_cluster
from dralab.runtime.resources import CLAIMS, NODES, PODS, SLICES
from dralab.web.desk import Desk
from dralab.web.followed_source import CHECK_EVERY, FollowedSource
from dralab.web.sources import UnreadableClusterError
from labs import START, Server


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def server(clock):
    server = Server(clock)
    server.add(NODES, worker("n1"))
    server.add(SLICES, *pool("n1", device("d0"), node="n1"))
    server.log.clear()
    return server


@pytest.fixture
def source(server, clock):
    return FollowedSource(server, clock)


@pytest.fixture
def told(source):
    """Follow the source; what is appended here is told."""
    found = []
    source.follow(lambda: found.append(1))
    source.read()
    return found


def names(objects, kind):
    return [item["metadata"]["name"] for item in objects if item["kind"] == kind]


def asked(server, verb):
    return [plural for each, plural, _ in server.log if each == verb]


def test_without_a_page_that_follows_it_is_listed_each_time(server, source):
    assert source.revision() is None
    source.read()
    source.read()
    assert asked(server, "list").count("nodes") == 2
    assert asked(server, "watch") == []
    assert not source.follows


def test_a_followed_cluster_is_listed_once_and_tells_of_each_change(server, source, told):
    before = source.revision()
    assert source.follows
    server.add(NODES, worker("n0"))
    server.delete(NODES, "n1")
    assert told
    assert source.revision() != before
    assert names(source.read(), "Node") == ["n0"]
    assert asked(server, "list").count("nodes") == 1
    served = {each.resource.plural for each in COLLECTIONS} - {
        "compositepodgroups"
    }  # 1.37 has them
    assert sorted(asked(server, "watch")) == sorted(served)


def test_what_is_followed_is_what_a_list_has(server, source, told):
    server.add(CLAIMS, claim("b", request("r0", "gpu")))
    server.add(CLAIMS, claim("a", request("r0", "gpu")))
    server.patch(NODES, "n1", {"spec": {"unschedulable": True}})
    assert told
    kept = [
        {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "managedFields"}}
        for item in read_cluster(server)
    ]
    assert list(source.read()) == kept
    assert names(kept, "ResourceClaim") == ["a", "b"]


def test_an_event_of_a_cluster_that_did_not_change_is_not_told(source, told):
    before = source.revision()
    assert (source.revision(), told) == (before, [])


def test_a_watch_that_expired_is_put_right_by_a_list(server, source, told):
    watch = next(each for each in server.watches if each.resource == NODES)
    watch.expire()
    server.add(NODES, worker("n2"))
    before = source.revision()
    assert names(source.read(), "Node") == ["n1", "n2"]
    assert source.revision() != before
    assert asked(server, "list").count("nodes") == 2
    assert asked(server, "list").count("resourceslices") == 1


def test_who_may_list_but_not_watch_is_shown_what_is_listed(server, source):
    server.fail_next("watch", "pods", ApiError("Forbidden", "cannot watch pods"))
    source.follow(lambda: None)
    assert names(source.read(), "Node") == ["n1"]
    assert not source.follows
    assert source.revision() is None
    server.add(NODES, worker("n2"))
    assert names(source.read(), "Node") == ["n1", "n2"]
    assert asked(server, "watch").count("pods") == 1


def test_once_no_page_follows_the_watches_are_closed(server, source):
    stop = source.follow(lambda: None)
    source.read()
    stop()
    source.release()
    assert not source.follows
    assert server.watches == []


def test_one_of_two_pages_that_leaves_takes_nothing_from_the_other(server, source):
    told = []
    for _ in range(2):
        stop = source.follow(lambda: told.append(1))
    source.read()
    stop()
    source.release()
    server.add(NODES, worker("n2"))
    assert told
    assert names(source.read(), "Node") == ["n1", "n2"]


@pytest.mark.parametrize(
    ("reason", "code"), [("Forbidden", 403), ("Unauthorized", 401), ("ServiceUnavailable", 502)]
)
def test_a_server_that_goes_away_or_withdraws_a_right_is_noticed(
    server, source, clock, told, reason, code
):
    assert told == []
    source.revision()
    server.fail_next("list", "deviceclasses", ApiError(reason, "no longer"))
    source.revision()  # it was asked a moment ago
    clock.advance(CHECK_EVERY)
    with pytest.raises(UnreadableClusterError, match="deviceclasses: no longer") as refused:
        source.revision()
    assert refused.value.code == code
    assert source.revision() is not None


def test_a_collection_that_cannot_be_listed_closes_all_watches(server, source):
    source.follow(lambda: None)
    server.fail_next("list", "pods", ApiError("Forbidden", "not for you"))
    with pytest.raises(UnreadableClusterError, match="not for you"):
        source.read()
    assert server.watches == []
    assert names(source.read(), "Node") == ["n1"]
    assert [each.resource for each in server.watches].count(PODS) == 1


@pytest.mark.parametrize("follows", [False, True])
def test_the_page_is_told_what_may_not_be_listed(server, source, clock, follows):
    if follows:
        source.follow(lambda: None)
    desk = Desk(source, clock, "lab", live=True)
    server.fail_next("list", "persistentvolumes", ApiError("Forbidden", "not for you"))
    assert orjson.loads(desk.waiting())["notJudged"] == ["volumes"]
    clock.advance(60 * CHECK_EVERY)
    server.add(NODES, worker("n2"))
    if not follows:
        assert orjson.loads(desk.waiting())["notJudged"] == []

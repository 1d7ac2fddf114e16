import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.api.status import ApiError
from dralab.kernel.randomness import Randomness
from dralab.objects.conditions import with_condition
from dralab.objects.metadata import NamespacedName
from dralab.runtime.cache import Caches
from dralab.runtime.client import amend
from dralab.runtime.events import shortened
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CONFIG_MAPS as THINGS
from dralab.runtime.resources import EVENTS
from dralab.runtime.simulated import SimulatedEngine
from labs import Server


@pytest.fixture
def engine():
    return SimulatedEngine()


@pytest.fixture
def server(engine):
    return Server(engine.clock)


def thing(name, **labels):
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}}


def stored(server):
    """What a cache keeps: everything but the managed fields."""
    found = [{**obj, "metadata": {**obj["metadata"]}} for obj in server.all(THINGS)]
    for obj in found:
        obj["metadata"].pop("managedFields", None)
    return found


def recorded(cache):
    seen = []
    cache.subscribe(
        lambda old, new: seen.append(
            (old and old["metadata"]["name"], new and new["metadata"]["name"])
        )
    )
    return seen


def test_a_cache_lists_and_then_follows(engine, server):
    server.add(THINGS, thing("a"))
    caches = Caches(engine, server)
    cache = caches.cache_for(THINGS)
    seen = recorded(cache)
    caches.start()
    engine.settle()
    assert caches.synced
    server.add(THINGS, thing("b"))
    server.delete(THINGS, "a", "default")
    engine.settle()
    assert seen == [(None, "a"), (None, "b"), ("a", None)]
    assert [obj["metadata"]["name"] for obj in cache.namespace("default")] == ["b"]


def test_after_expiry_subscribers_hear_the_difference_and_nothing_twice(engine, server):
    server.add(THINGS, thing("a"), thing("b"))
    caches = Caches(engine, server)
    seen = recorded(caches.cache_for(THINGS))
    caches.start()
    engine.settle()
    watch = server.watches[0]
    watch.silence()
    server.delete(THINGS, "a", "default")
    server.add(THINGS, thing("c"))
    watch.expire()
    engine.settle()
    assert seen == [(None, "a"), (None, "b"), ("a", None), (None, "c")]


def test_an_object_made_anew_under_its_name_is_told_as_gone_and_new(engine, server):
    server.add(THINGS, thing("a"))
    caches = Caches(engine, server)
    seen = recorded(caches.cache_for(THINGS))
    caches.start()
    engine.settle()
    watch = server.watches[0]
    watch.silence()
    server.delete(THINGS, "a", "default")
    server.add(THINGS, thing("a"))
    watch.expire()
    engine.settle()
    assert seen == [(None, "a"), ("a", None), (None, "a")]


def test_a_list_that_fails_is_tried_again(engine, server):
    server.fail_next("list", "configmaps", ApiError("ServiceUnavailable", "down"))
    caches = Caches(engine, server)
    caches.cache_for(THINGS)
    caches.start()
    engine.settle()
    assert not caches.synced
    engine.run(engine.clock.now() + 10**9)
    assert caches.synced


def test_an_index_follows_every_change(engine, server):
    caches = Caches(engine, server)
    cache = caches.cache_for(THINGS)
    cache.index("app", lambda obj: [(obj["metadata"].get("labels") or {}).get("app", "")])
    caches.start()
    server.add(THINGS, thing("a", app="x"), thing("b", app="y"))
    engine.settle()
    server.patch(THINGS, "b", {"metadata": {"labels": {"app": "x"}}}, "default")
    engine.settle()
    assert [obj["metadata"]["name"] for obj in cache.find("app", "x")] == ["a", "b"]
    assert cache.find("app", "y") == []


def test_what_a_write_returned_is_known_before_the_watch_tells_it(engine, server):
    caches = Caches(engine, server)
    cache = caches.cache_for(THINGS)
    seen = recorded(cache)
    caches.start()
    engine.settle()
    cache.learn(server.create(THINGS, thing("a")))
    assert cache.get(NamespacedName("default", "a")) is not None
    engine.settle()
    assert seen == [(None, "a")]


@pytest.mark.thorough
@given(
    st.lists(
        st.tuples(st.sampled_from("cudx"), st.sampled_from("abcd"), st.booleans()), max_size=40
    )
)
def test_a_cache_ends_equal_to_the_server_whatever_happened(steps):
    engine = SimulatedEngine()
    server = Server(engine.clock)
    caches = Caches(engine, server)
    cache = caches.cache_for(THINGS)
    told = {}

    def tell(old, new):
        name = (new or old)["metadata"]["name"]
        assert told.get(name) == (old and old["metadata"]["uid"])
        told[name] = new and new["metadata"]["uid"]

    cache.subscribe(tell)
    caches.start()
    for number, (step, name, settle) in enumerate(steps):
        try:
            if step == "c":
                created = server.create(THINGS, thing(name))
                if settle:
                    cache.learn(created)
            elif step == "u":
                server.patch(THINGS, name, {"metadata": {"labels": {"n": str(number)}}}, "default")
            elif step == "d":
                server.delete(THINGS, name, "default")
            elif server.watches:
                server.watches[0].expire()
        except ApiError:
            pass
        if settle:
            engine.settle()
    engine.settle()
    assert list(cache.namespace("default")) == stored(server)


def test_queues_hold_their_keys_back_until_the_caches_are_synced(engine, server):
    manager = Manager(engine, server, Randomness(1))
    seen = []
    queue = manager.queue("q", seen.append)
    manager.cache(THINGS)
    queue.add("a")
    engine.settle()
    assert seen == []
    manager.start()
    engine.settle()
    assert seen == ["a"]


def test_something_periodic_runs_each_period_until_the_stop(engine, server):
    manager = Manager(engine, server, Randomness(1))
    times = []
    manager.every(10, lambda: times.append(engine.clock.now()))
    manager.start()
    engine.run(35)
    manager.stop()
    engine.run(100)
    assert times == [10, 20, 30]


def test_a_change_is_made_again_on_what_someone_else_wrote(server):
    [stored] = server.add(THINGS, thing("a"))
    server.patch(THINGS, "a", {"metadata": {"labels": {"other": "1"}}}, "default")

    def change(obj):
        obj["metadata"].setdefault("labels", {})["mine"] = "1"
        return True

    amended = amend(server, THINGS, stored, change)
    assert amended["metadata"]["labels"] == {"other": "1", "mine": "1"}


def test_a_change_is_not_made_on_a_successor_of_the_same_name(server):
    [stored] = server.add(THINGS, thing("a"))
    server.delete(THINGS, "a", "default")
    server.add(THINGS, thing("a"))
    with pytest.raises(ApiError, match="not found"):
        amend(server, THINGS, stored, lambda obj: obj["metadata"].update(labels={}) is None)


def test_the_same_event_again_counts_up(engine, server):
    [stored] = server.add(THINGS, thing("a"))
    manager = Manager(engine, server, Randomness(1))
    recorder = manager.recorder("tests")
    for _ in range(3):
        recorder.event(stored, "Pod", "Because", "it is so", type="Warning")
        engine.settle()
    recorder.event(stored, "Pod", "Because", "it is otherwise")
    engine.settle()
    assert sorted((event["message"], event["count"]) for event in server.all(EVENTS)) == [
        ("it is otherwise", 1),
        ("it is so", 3),
    ]


def test_a_long_message_is_cut_at_a_character():
    assert len(shortened("ü" * 2000).encode()) <= 1024
    assert shortened("ü" * 2000).endswith("ü...")


def test_a_condition_keeps_its_time_while_its_status_stays():
    first = with_condition([], {"type": "A", "status": "True"}, now="1")
    second = with_condition(first, {"type": "A", "status": "True", "reason": "R"}, now="2")
    third = with_condition(second, {"type": "A", "status": "False"}, now="3")
    times = [found[0]["lastTransitionTime"] for found in (first, second, third)]
    assert times == ["1", "1", "3"]


def test_a_server_that_began_anew_is_believed_although_its_revisions_are_lower(engine, server):
    server.add(THINGS, thing("old"), thing("both"), thing("both2"))
    caches = Caches(engine, server)
    cache = caches.cache_for(THINGS)
    caches.start()
    engine.settle()
    watch = server.watches[0]
    server.begin_anew()
    server.add(THINGS, thing("both"))
    watch.expire()
    engine.settle()
    assert [obj["metadata"]["name"] for obj in cache] == ["both"]
    assert [cache.get(NamespacedName("default", "both"))] == stored(server)

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dralab.apiserver.storage import Change, Compacted, Key, MemoryStore, Stored
from dralab.apiserver.storage.watching import Hub, Subscription, TooManyWatchers, WatchLimits
from dralab.apiserver.storage.watching.groups import PIECE, pieces_of
from dralab.apiserver.storage.watching.hub import INITIAL_RUN, INITIAL_WEIGHT
from dralab.kernel.clock import SECOND, ManualClock


@dataclass(frozen=True)
class Watching:
    """A watch by namespace, name and colour."""

    resource: str = "pods"
    version: str = "v1"
    namespace: str = ""
    name: str = ""
    accepts: Callable[[Stored], bool] | None = None
    exact: tuple[str, Callable[[dict[str, Any]], str], str] | None = None
    initial: Sequence[Stored] = ()
    initial_end: bool = False
    since: int = 0
    bookmarks: bool = False

    def includes(self, stored: Stored | None) -> bool:
        return (
            stored is not None
            and self.namespace in ("", stored.key.namespace)
            and self.name in ("", stored.key.name)
            and (self.accepts is None or self.accepts(stored))
        )

    def seen(self, change: Change) -> Any:
        was, is_ = self.includes(change.before), self.includes(change.after)
        if is_:
            return ("MODIFIED" if was else "ADDED"), change.after
        return ("DELETED", change.departed) if was else None


@dataclass
class Lines:
    """Events as short lines; counts how many it had to make."""

    shared: bool = True
    made: list[str] = field(default_factory=list)

    def __hash__(self) -> int:
        return hash(self.shared)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lines)

    def event(self, type: str, stored: Stored) -> bytes:
        self.made.append(type)
        colour = stored.value.get("colour", "")
        where = f"{stored.key.namespace}/{stored.key.name}"
        return f"{type} {where} {colour} {stored.revision}\n".encode()

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        return f"{'END' if initial_end else 'BOOKMARK'} {revision}\n".encode()


class Place:
    """A store, a hub, a clock."""

    def __init__(self, **limits: int) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.hub = Hub(self.store, self.clock, WatchLimits(**limits))

    def paint(self, name: str, colour: str, namespace: str = "ns") -> Stored:
        key = Key("pods", namespace, name)
        value = {"metadata": {}, "colour": colour}
        return (self.store.update if self.store.get(key) else self.store.create)(key, value)

    def present(self, **options: Any) -> Watching:
        wanted = Watching(**options)
        items = [one for one in self.store.list("pods").items if wanted.includes(one)]
        return Watching(initial=items, since=self.store.revision, initial_end=True, **options)


def colour(value: dict[str, Any]) -> str:
    return str(value["colour"])


def red(stored: Stored) -> bool:
    return colour(stored.value) == "red"


def read(watch: Subscription[bytes]) -> list[str]:
    text = b""
    while items := watch.take_items():
        text += b"".join(items)
    return text.decode().splitlines()


@pytest.fixture
def place() -> Place:
    return Place()


def test_the_hub_counts_its_watches(place: Place) -> None:
    watches = [place.hub.open(Watching(), Lines()) for _ in range(3)]
    place.hub.open(Watching(resource="nodes"), Lines())
    nodes, pods = ("nodes", "v1", "cluster"), ("pods", "v1", "cluster")
    assert sorted(place.hub.watches()) == [(nodes, 1), (pods, 3)]
    watches[0].close()
    assert sorted(place.hub.watches()) == [(nodes, 1), (pods, 2)]


def test_an_object_that_enters_or_leaves_a_selection_is_added_or_deleted(place: Place) -> None:
    watch = place.hub.open(Watching(accepts=red, since=place.store.revision), Lines())
    place.paint("a", "blue")
    place.paint("a", "red")
    place.paint("a", "red")
    place.paint("a", "blue")
    place.paint("a", "red")
    gone = place.store.delete(Key("pods", "ns", "a"))
    assert read(watch) == [
        "ADDED ns/a red 3",
        "MODIFIED ns/a red 4",
        "DELETED ns/a red 5",  # as it was, at the revision at which it left
        "ADDED ns/a red 6",
        f"DELETED ns/a red {gone.revision}",
    ]


def test_a_watch_may_begin_with_what_is_there_and_say_where_that_ends(place: Place) -> None:
    place.paint("a", "red")
    place.paint("b", "blue")
    watch = place.hub.open(place.present(accepts=red), Lines())
    place.paint("c", "red")
    assert read(watch) == ["ADDED ns/a red 2", "END 3", "ADDED ns/c red 4"]


def test_a_watch_may_begin_in_the_past_but_not_before_the_history(place: Place) -> None:
    first = place.paint("a", "red")
    place.paint("a", "blue")
    watch = place.hub.open(Watching(since=first.revision), Lines())
    place.paint("b", "red", "other")
    assert read(watch) == ["MODIFIED ns/a blue 3", "ADDED other/b red 4"]
    place.store.compact(place.store.revision)
    with pytest.raises(Compacted):
        place.hub.open(Watching(since=first.revision), Lines())


def test_a_watch_may_begin_in_the_future_and_waits_for_it(place: Place) -> None:
    watch = place.hub.open(Watching(since=3), Lines())
    place.paint("a", "red")
    place.paint("b", "red")
    assert read(watch) == []
    place.paint("c", "red")
    assert read(watch) == ["ADDED ns/c red 4"]


def test_a_watch_that_begins_within_a_batch_sees_each_change_once(place: Place) -> None:
    with place.store.batch():
        place.paint("a", "red")
        watch = place.hub.open(place.present(), Lines())
        neighbour = place.hub.open(Watching(since=1), Lines())
        place.paint("b", "red")
    assert read(watch) == ["ADDED ns/a red 2", "END 2", "ADDED ns/b red 3"]
    assert read(neighbour) == ["ADDED ns/a red 2", "ADDED ns/b red 3"]


def test_watchers_who_want_the_same_share_each_line(place: Place) -> None:
    spelling = Lines()
    watches = [place.hub.open(Watching(since=1), spelling) for _ in range(5)]
    watches.append(place.hub.open(Watching(since=1, namespace="ns"), spelling))
    place.paint("a", "red")
    assert spelling.made == ["ADDED"]
    assert [read(watch) for watch in watches] == [["ADDED ns/a red 2"]] * 6
    pieces = [watch.take_items() for watch in watches]
    assert pieces == [()] * 6
    assert place.hub.held == 0


def test_a_change_asks_only_those_whom_it_may_concern(place: Place) -> None:
    asked: list[str] = []

    def watching(name: str) -> Watching:
        def accepts(stored: Stored) -> bool:
            asked.append(name)
            return colour(stored.value) == name

        return Watching(accepts=accepts, exact=("colour", colour, name))

    watches = {name: place.hub.open(watching(name), Lines()) for name in ("red", "green", "blue")}
    place.paint("a", "red")
    place.paint("a", "green")
    assert sorted(set(asked)) == ["green", "red"]
    assert read(watches["red"]) == ["ADDED ns/a red 2", "DELETED ns/a red 3"]
    assert read(watches["green"]) == ["ADDED ns/a green 3"]
    for watch in watches.values():
        watch.close()
    assert place.hub.watchers == 0


def test_a_spelling_of_its_own_is_asked_by_each_watch(place: Place) -> None:
    spelling = Lines(shared=False)
    for _ in range(3):
        place.hub.open(Watching(since=1), spelling)
    place.paint("a", "red")
    assert len(spelling.made) == 3


def test_a_bookmark_that_says_nothing_new_is_not_sent(place: Place) -> None:
    asked = place.hub.open(Watching(bookmarks=True, since=place.store.revision), Lines())
    place.hub.bookmark(asked)
    assert read(asked) == []
    place.store.create(Key("nodes", "", "n"), {"metadata": {}})
    place.hub.bookmark(asked)
    assert read(asked) == ["BOOKMARK 2"]


def test_bookmarks_come_about_once_a_minute_to_those_who_asked(place: Place) -> None:
    asked = place.hub.open(Watching(bookmarks=True), Lines())
    other = place.hub.open(Watching(), Lines())
    place.store.create(Key("nodes", "", "n"), {"metadata": {}})
    place.clock.advance(59 * SECOND)
    place.hub.tick()
    assert read(asked) == []
    place.clock.advance(SECOND)
    place.hub.tick()
    place.hub.tick()
    assert read(asked) == ["BOOKMARK 2"], "of the store's revision: other collections count"
    place.hub.bookmark(asked)
    place.hub.bookmark(other)
    assert (read(asked), read(other)) == (["BOOKMARK 2"], [])


def test_a_slow_watcher_is_cut_off_and_stops_no_other(place: Place) -> None:
    place = Place(each=60)
    slow = place.hub.open(Watching(), Lines())
    quick = place.hub.open(Watching(), Lines())
    seen = []
    for index in range(10):
        place.paint(f"p{index}", "red")
        seen += read(quick)
    assert slow.cut == "the watcher reads too slowly: 72 bytes are queued for it"
    assert slow.take_items() == ()
    assert len(seen) == 10
    assert (quick.cut, place.hub.watchers, place.hub.held) == (None, 1, 0)


def test_a_watcher_may_have_just_as_much_queued_as_is_allowed() -> None:
    for limits in ({"each": 72}, {"total": 72}):
        place = Place(**limits)
        slow = place.hub.open(Watching(), Lines())
        for index in range(4):
            place.paint(f"p{index}", "red")
        assert (slow.cut, place.hub.held) == (None, 72)
        place.paint("p4", "red")
        assert slow.cut == "the watcher reads too slowly: 90 bytes are queued for it"


def test_a_watcher_that_leaves_takes_no_other_of_the_same_value_along(place: Place) -> None:
    red_ones = [
        Watching(accepts=red, exact=("colour", colour, "red"), namespace=namespace)
        for namespace in ("ns", "")
    ]
    gone, stays = (place.hub.open(wanted, Lines()) for wanted in red_ones)
    gone.close()
    place.paint("a", "red")
    assert read(stays) == ["ADDED ns/a red 2"]
    stays.close()
    again = place.hub.open(red_ones[0], Lines())
    place.paint("b", "red")
    assert read(again)[-1] == "ADDED ns/b red 3"


def test_shared_bytes_count_once_against_the_memory_of_all(place: Place) -> None:
    place = Place(total=100)
    watches = [place.hub.open(Watching(), Lines()) for _ in range(50)]
    for index in range(5):
        place.paint(f"p{index}", "red")
    assert place.hub.held == 5 * 18
    assert [watch.cut for watch in watches] == [None] * 50
    place.paint("p5", "red")
    assert place.hub.held == 0, "all of them held the same bytes"
    assert all(watch.cut for watch in watches)


def test_watches_that_are_over_and_never_read_have_no_other_cut_off() -> None:
    place = Place(total=100)
    over = [place.hub.open(Watching(namespace=name), Lines()) for name in ("a", "b")]
    for namespace in ("a", "a", "b", "b"):
        place.paint(f"p{place.store.revision}", "red", namespace)
    for watch in over:
        watch.finish()
    reading = place.hub.open(Watching(since=place.store.revision), Lines())
    for index in range(3):
        place.paint(f"q{index}", "red")
    assert reading.cut is None
    assert sum(watch.cut is not None for watch in over) == 1, "one of them was enough"
    assert len(read(reading)) == 3
    (left,) = (watch for watch in over if watch.cut is None)
    assert len(read(left)) == 2
    assert place.hub.held == 0
    for index in range(9):  # those that have read all are not looked for any more
        place.paint(f"r{index}", "red")
    assert reading.cut is not None
    assert place.hub.held == 0


def test_there_is_a_limit_of_watches(place: Place) -> None:
    place = Place(watchers=1)
    watch = place.hub.open(Watching(), Lines())
    with pytest.raises(TooManyWatchers, match="the limit is 1"):
        place.hub.open(Watching(), Lines())
    watch.close()
    watch.close()
    other = place.hub.open(Watching(), Lines())
    place.paint("a", "red")
    place.hub.close()
    assert place.hub.watchers == 0
    assert (read(other), other.done, other.cut) == (["ADDED ns/a red 2"], True, None)


def test_a_watcher_is_told_when_there_is_news(place: Place) -> None:
    told: list[str] = []
    watch = place.hub.open(Watching(), Lines())
    watch.notify(lambda: told.append("news"))
    assert told == []
    place.paint("a", "red")
    assert told == ["news"]
    watch.notify(lambda: told.append("again"))
    assert told == ["news", "again"]
    watch.close()
    assert told == ["news", "again", "again"]
    assert watch.waiting


def test_a_watch_that_begins_with_objects_tells_at_once_that_there_is_something(
    place: Place,
) -> None:
    told: list[str] = []
    nothing = place.hub.open(Watching(since=place.store.revision), Lines())
    nothing.notify(lambda: told.append("nothing"))
    assert told == []
    assert not nothing.waiting
    place.paint("a", "red")
    first = place.hub.open(place.present(), Lines())
    assert first.waiting
    first.notify(lambda: told.append("first"))
    assert told == ["nothing", "first"]


def test_a_watch_that_is_over_before_it_was_read_still_begins(place: Place) -> None:
    place.paint("a", "red")
    watch = place.hub.open(place.present(), Lines())
    watch.finish()
    assert not watch.done
    assert read(watch)[0].startswith("ADDED ns/a")
    assert watch.done


def test_a_watch_that_is_over_is_read_to_its_end_its_beginning_included(place: Place) -> None:
    place.paint("a", "red")
    watch = place.hub.open(place.present(), Lines())
    place.paint("b", "red")
    watch.finish()
    place.paint("c", "red")
    assert not watch.done
    assert watch.take_items()
    assert not watch.done
    lines = read(watch)
    assert watch.done
    assert watch.cut is None
    assert lines[-1].startswith("ADDED ns/b")
    assert not watch.take_items()


def test_a_start_of_many_objects_comes_in_pieces(place: Place) -> None:
    with place.store.batch():
        for index in range(1_000):
            place.paint(f"p{index:04}", "red" * 100)
    watch = place.hub.open(place.present(), Lines())
    sizes = []
    while items := watch.take_items():
        sizes.append(sum(len(item) for item in items))
    assert max(sizes) < 70_000
    assert sum(sizes) > 300_000


def test_a_start_is_spelled_as_it_is_read(place: Place) -> None:
    with place.store.batch():
        for index in range(3 * INITIAL_RUN):
            place.paint(f"p{index}", "red")
    shared, own = Lines(), Lines(shared=False)
    watches = [place.hub.open(place.present(), spelling) for spelling in (shared, own)]
    made = (len(shared.made), len(own.made))
    assert made == (0, INITIAL_RUN), "a spelling with its own state begins before what comes later"
    for watch in watches:
        assert read(watch)[-1] == f"END {place.store.revision}"
    assert shared.made == own.made == ["ADDED"] * 3 * INITIAL_RUN


def test_large_objects_are_spelled_few_at_a_time(place: Place) -> None:
    empty = [len(place.paint(f"p{index}", "").encoded) for index in range(10)][-1]
    with place.store.batch():
        for index in range(10):  # four of them are just as many bytes as may come together
            place.paint(f"p{index}", "x" * (INITIAL_WEIGHT // 4 - empty))
    spelling = Lines()
    watch = place.hub.open(place.present(), spelling)
    while watch.waiting and len(spelling.made) < 10:
        before = len(spelling.made)
        watch.take_items()
        assert len(spelling.made) - before in (0, 5)
    assert len(spelling.made) == 10


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        ([PIECE - 1, 1], [PIECE]),
        ([PIECE, 1], [PIECE, 1]),
        ([PIECE + 1], [PIECE + 1]),
        ([1, PIECE + 1, 1], [1, PIECE + 1, 1]),
    ],
)
def test_lines_are_joined_until_a_piece_is_full(lines: list[int], expected: list[int]) -> None:
    found = pieces_of([b"x" * size for size in lines])
    assert [len(b"".join(piece.items)) for piece in found] == expected
    assert [piece.weight for piece in found] == expected


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_watcher_sees_every_change_once_and_in_order(data: st.DataObject) -> None:
    """Whoever applies the events of a watch to what it was shown arrives at what is there."""
    place = Place()
    names, colours = st.sampled_from("abc"), st.sampled_from(["red", "blue"])
    watches: list[tuple[Subscription[bytes], Watching]] = []
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["paint", "delete", "watch", "batch", "read"])):
            case "paint":
                place.paint(data.draw(names), data.draw(colours))
            case "delete":
                key = Key("pods", "ns", data.draw(names))
                if place.store.get(key):
                    place.store.delete(key)
            case "batch":
                with place.store.batch():
                    for _ in range(data.draw(st.integers(0, 4))):
                        place.paint(data.draw(names), data.draw(colours))
            case "watch":
                options: dict[str, Any] = data.draw(
                    st.sampled_from(
                        [
                            {},
                            {"accepts": red},
                            {"accepts": red, "exact": ("colour", colour, "red")},
                            {"name": "a"},
                            {"namespace": "ns"},
                            {"namespace": "elsewhere"},
                        ]
                    )
                )
                wanted = place.present(**options)
                if data.draw(st.booleans()):
                    wanted = Watching(since=1, **options)
                watches.append((place.hub.open(wanted, Lines()), wanted))
    for watch, wanted in watches:
        state: dict[str, str] = {}
        last = 0
        for line in read(watch):
            event, *rest = line.split()
            if event == "END":
                last = int(rest[0])
                continue
            name, shade, revision = rest
            assert (event == "ADDED") == (name not in state)
            if event == "DELETED":
                del state[name]
            else:
                state[name] = shade
            if int(revision) > wanted.since:
                assert int(revision) > last
                last = int(revision)
        expected = {
            f"ns/{one.key.name}": one.value["colour"]
            for one in place.store.list("pods").items
            if wanted.includes(one)
        }
        assert state == expected
    assert place.hub.held == 0

"""The page in a real browser while its cluster changes, stops to answer, or may not be read."""

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.kernel.clock import SECOND, ManualClock, WallClock
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from dralab.web.desk import Desk
from dralab.web.followed_source import FollowedSource
from labs import Server
from web.chromium import ForbiddenSource, desk, needs_chromium, opened, tab
from web.pages import HOSTILE

HOUR = 3600 * SECOND
pytestmark = needs_chromium


def test_a_server_that_goes_away_is_told_and_what_was_seen_stays(browser):
    with opened(browser, desk(live=True)) as page:
        page.get_by_text("2 nodes, 5 devices").wait_for()
        page.thread.stop()
        page.get_by_text("The server does not answer.").wait_for()
        page.get_by_text("The state shown is old.").wait_for()
        assert page.get_by_text("2 nodes, 5 devices").is_visible()
        assert page.faults == []


def test_a_change_is_shown_as_it_comes(browser):
    clock = WallClock()
    server = Server(clock)
    server.add(NODES, worker("n1"))
    with opened(browser, Desk(FollowedSource(server, clock), clock, "a lab", live=True)) as page:
        page.get_by_text("live, as of").wait_for()
        page.get_by_text("1 node, 0 devices").wait_for()
        server.add(NODES, worker("n2"))
        server.add(SLICES, *pool("n2", device("d0"), node="n2"))
        page.get_by_text("2 nodes, 1 device").wait_for()
        assert [path for path in page.asked if "changes" in path] == ["/ui/data/changes"]
        assert page.faults == []


def test_what_changed_while_one_looked_is_listed_and_the_view_stays(browser):
    clock = WallClock()
    server = Server(clock)
    for item in (worker("n1"), worker("n2")):
        server.add(NODES, item)
    server.add(SLICES, *pool("n1", device("d0"), node="n1"))
    server.add(CLASSES, device_class("gpu"))
    for name in ("one", "two"):
        server.add(CLAIMS, claim(name, request("r0", "gpu", count=2)))
        server.add(PODS, pod(name, claims={"g": name}))
    with opened(browser, Desk(FollowedSource(server, clock), clock, "a lab", live=True)) as page:
        page.get_by_text("live, as of").wait_for()
        tab(page, "Waiting")
        page.get_by_text("2 pods and claims").wait_for()
        page.get_by_role("button", name="pod default/one").click()
        page.get_by_role("heading", name="What would help").wait_for()
        # From here on nothing that is shown goes away, not for a moment.
        page.evaluate(
            """() => {
              window.emptied = [];
              new MutationObserver(() => {
                for (const text of ["What would help", "pods and claims"]) {
                  if (!document.body.textContent.includes(text)) window.emptied.push(text);
                }
              }).observe(document.body, { childList: true, subtree: true, characterData: true });
            }"""
        )
        page.get_by_text("Changes", exact=True).click()
        page.get_by_text("Nothing changed since this page was opened.").wait_for()
        page.keyboard.press("Escape")
        held = claim("has", request("r0", "gpu"))
        found = {"request": "r0", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
        held["status"] = {"allocation": {"devices": {"results": [found]}}}
        server.add(CLAIMS, held)
        server.update(NODES, server.get(NODES, "n2") | {"spec": {"unschedulable": True}})
        server.add(CLAIMS, claim("three", request("r0", "gpu", count=2)))
        server.add(PODS, pod("three", claims={"g": "three"}))
        page.get_by_text("3 pods and claims").wait_for()
        page.locator("summary").filter(has_text="Changes").get_by_text("3").wait_for()
        page.locator("summary").filter(has_text="Changes").click()
        region = page.get_by_role("region", name="What changed since this page was opened")
        region.get_by_role("button", name="pod default/three waits").wait_for()
        assert sorted(region.get_by_role("button").all_inner_texts()) == [
            "claim default/has has 1 device on n1",
            "node n2 is cordoned",
            "pod default/three waits",
        ]
        assert page.evaluate("window.emptied") == []
        page.set_viewport_size({"width": 390, "height": 844})
        box = region.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        region.get_by_role("button", name="pod default/three waits").click()
        page.get_by_role("heading", name="pod default/three").wait_for()
        assert page.locator("summary").filter(has_text="Changes").inner_text() == "Changes"
        assert page.faults == []


class BusySource:
    """A cluster that changes as often as it is told."""

    follows = True
    not_judged = ()

    def __init__(self):
        self.changes, self.told = 0, []

    def revision(self):
        return str(self.changes)

    def read(self):
        return [worker(f"n{self.changes}")]

    def follow(self, changed):
        self.told.append(changed)
        return lambda: self.told.remove(changed)

    def release(self):
        pass

    def change(self):
        self.changes += 1
        for tell in self.told:
            tell()


def test_a_hundred_thousand_changes_at_once_are_a_few_looks(browser):
    source = BusySource()
    with opened(browser, Desk(source, WallClock(), "a lab", live=True)) as page:
        page.get_by_text("live, as of").wait_for()
        looks = page.asked.count("/ui/data/fleet")
        for _ in range(100_000):
            source.change()
        page.get_by_role("button", name="Table").click()
        page.get_by_role("button", name="n100000").wait_for()
        assert page.asked.count("/ui/data/fleet") - looks < 100
        assert page.faults == []


def test_a_stream_that_breaks_is_taken_up_again(browser):
    clock = WallClock()
    server = Server(clock)
    server.add(NODES, worker("n1"))
    with opened(browser, Desk(FollowedSource(server, clock), clock, "a lab", live=True)) as page:
        page.get_by_text("live, as of").wait_for()
        page.app.end_streams()
        page.get_by_text("live, as of").wait_for(state="detached")
        server.add(NODES, worker("n2"))
        page.get_by_text("2 nodes").wait_for()
        page.get_by_text("live, as of").wait_for()
        assert page.faults == []


def test_a_snapshot_is_not_followed(browser):
    with opened(browser, desk()) as page:
        page.get_by_text("2 nodes, 5 devices").wait_for()
        page.wait_for_timeout(500)
        assert [path for path in page.asked if "changes" in path] == []


def test_a_cluster_that_may_not_be_read_says_why(browser):
    with opened(browser, Desk(ForbiddenSource(), ManualClock(), "a lab", live=True)) as page:
        page.get_by_role("alert").get_by_text(
            f"cannot list nodes: {HOSTILE} is forbidden"
        ).wait_for()
        assert page.faults == []

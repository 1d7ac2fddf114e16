"""The page's view of time in a real browser: runs, recorded weeks, what a window has seen."""

from builders import claim, device, pool, request, worker
from dralab.kernel.clock import SECOND, WallClock
from dralab.runtime.resources import CLAIMS, NODES, SLICES
from dralab.simulation import dispatch
from dralab.simulation.reports import run as reports
from dralab.simulation.results import outputs
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.simulation.scenario import scenario as scenarios
from dralab.web.desk import Desk
from dralab.web.followed_source import FollowedSource
from dralab.web.run_desk import RunDesk
from labs import Server
from web.chromium import BEYOND, needs_chromium, opened, tab
from web.test_run_desk import result

HOUR = 3600 * SECOND
pytestmark = needs_chromium


def test_a_run_that_was_cut_is_shown_as_far_as_it_goes(browser, tmp_path):
    outputs.write(result(), tmp_path, parquet=False)
    path = tmp_path / "tasks.csv"
    path.write_bytes(path.read_bytes()[:-5])
    with opened(browser, RunDesk(tmp_path)) as page:
        page.get_by_text("tasks.csv is cut: its last row is left out").wait_for()
        page.get_by_role("slider", name="Time").fill("30")
        page.get_by_role("rowheader", name="a", exact=True).wait_for()
        page.get_by_role("button", name="Play").click()
        page.get_by_role("button", name="Stop").click()
        assert page.faults == []


def long_run():
    """Two thousand devices, and on each of them 25 tasks one after the other: 100,000 events."""
    lanes = [f"n{node}/gpu-{gpu}" for node in range(250) for gpu in range(8)]
    tasks = [
        Task(f"t{lane}-{at}", "ann", "Succeeded", 0, *[at * HOUR] * 2, (at + 1) * HOUR, 1, (lane,))
        for lane in range(len(lanes))
        for at in range(25)
    ]
    samples = [StateSample(at * SECOND, at % 7, 2000, 0, 1_000_000, 0.0) for at in range(90_000)]
    return Result(
        name="long", scheduler="fifo", seed=1, tasks=tasks, samples=samples, lanes=lanes,
        capacity={"gpu": 2_000_000}, end=25 * HOUR,
    )  # fmt: skip


def test_a_simulation_of_a_hundred_thousand_events_is_played(browser, tmp_path):
    outputs.write(long_run(), tmp_path, parquet=False)
    with opened(browser, RunDesk(tmp_path)) as page:
        slider = page.get_by_role("slider", name="Time")
        slider.fill("9000")
        page.get_by_role("heading", name="At 02:30:00: 2,000").wait_for()
        page.get_by_role("rowheader", name="t0-2", exact=True).wait_for()
        page.get_by_role("list", name="Curves, with their values at 02:30:00").get_by_text(
            "GPUs 50 %"
        ).wait_for()
        page.get_by_role("region", name="2,000 lanes of devices").wait_for()
        page.get_by_text("Numbers of the run").click()
        page.get_by_role("row", name="makespan").get_by_text("from the first submission").wait_for()
        page.get_by_role("combobox", name="Lanes").select_option("nodes")
        page.get_by_role("region", name="250 lanes of nodes").wait_for()
        page.get_by_role("button", name="Zoom in on time").click()
        page.get_by_role("img", name="from 01:15:00 to 13:45:00").wait_for()
        page.get_by_role("combobox", name="Speed").select_option("10000")
        page.get_by_role("button", name="Play").click()
        # What plays leaves the window, and the window follows; at the end it stops.
        page.get_by_role("img", name="to 1d 01:00:00").wait_for()
        page.get_by_role("button", name="Play").wait_for()
        assert float(slider.input_value()) == 90_000
        assert page.faults == []


WEEK = (
    "name: a week\nfleet: {nodes: [{name: n, count: 4, cpu: 16, gpus: 4}]}\n"
    "workload: {pods: [{name: p, count: 160, every: 1h, duration: 5h, cpu: 2, gpus: 2, user: ann}]}\n"
    "faults: [{node: n-0, at: 2d, for: 6h}]\nscheduler: firstfit\n"
)


def test_a_recorded_week_is_opened_and_looked_at_by_day(browser, tmp_path):
    scenario = tmp_path / "week.yaml"
    scenario.write_text(WEEK)
    reports.write(dispatch.begin(scenarios.load(scenario)).go(), tmp_path / "week", parquet=False)
    with opened(browser, RunDesk(tmp_path / "week")) as page:
        page.get_by_role("heading", name="a week · firstfit · seed 0").wait_for()
        slider = page.get_by_role("slider", name="Time")
        assert float(slider.get_attribute("max")) > 6.5 * 86_400
        # Offered is a speed at which the week takes about two minutes at most.
        assert page.get_by_role("combobox", name="Speed").input_value() == "10000"
        slider.fill(str(3.5 * 86_400))
        page.get_by_role("heading", name="At 3d 12:00:00: 5").wait_for()
        row = page.get_by_role("row", name="p-84")
        assert row.get_by_role("cell").all_inner_texts()[:2] == ["3d 12:00:00", "3d 17:00:00"]
        curves = page.get_by_role("list", name="Curves, with their values at 3d 12:00:00")
        curves.get_by_text("GPUs 62.5 %").wait_for()
        # A day of the week: zoomed in three times, an eighth of it is shown around the time.
        for _ in range(3):
            page.get_by_role("button", name="Zoom in on time").click()
        page.get_by_role("img", name="from 3d 01:").wait_for()
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_role("region", name="16 lanes of devices").wait_for()
        assert page.evaluate(BEYOND) == 0
        assert page.faults == []


def test_what_the_window_has_seen_of_a_cluster_is_looked_at_again(browser):
    clock = WallClock()
    server = Server(clock)
    server.add(NODES, worker("n1"))
    server.add(SLICES, *pool("n1", device("d0"), node="n1"))
    with opened(browser, Desk(FollowedSource(server, clock), clock, "a lab", live=True)) as page:
        page.get_by_text("live, as of").wait_for()
        page.get_by_text("free 1").wait_for()
        held = claim("has", request("r0", "gpu"))
        result = {"request": "r0", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
        held["status"] = {"allocation": {"devices": {"results": [result]}}}
        server.add(CLAIMS, held)
        page.get_by_text("used 1").wait_for()
        tab(page, "Time")
        page.get_by_role("rowheader", name="claim default/has").wait_for()
        page.get_by_role("slider", name="Time").press("Home")
        page.get_by_role("heading", name=": 0").wait_for()
        page.get_by_role("button", name="Now").click()
        page.get_by_role("rowheader", name="claim default/has").wait_for()
        server.update(
            CLAIMS, server.get(CLAIMS, "has", "default") | {"status": {}}, subresource="status"
        )
        page.get_by_role("rowheader", name="claim default/has").wait_for(state="detached")
        assert page.faults == []

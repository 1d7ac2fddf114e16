"""The page in a real browser: what is seen, keyboard, roles and contrast, hostile names.

Changes are in `test_page_live`, time in `test_page_time_view`, whole tasks in `test_page_journey`.
"""

import pytest

from builders import claim, device, pod, pool, request, worker
from dralab.kernel.clock import SECOND, ManualClock
from dralab.simulation.results import outputs
from dralab.web.desk import Desk
from dralab.web.run_desk import RunDesk
from web.chromium import (
    BEYOND,
    PATIENCE,
    ForbiddenSource,
    axe,
    desk,
    needs_axe,
    needs_chromium,
    opened,
    served,
    tab,
)
from web.pages import HOSTILE, cluster, event, stored, waiting_pods
from web.test_run_desk import result

HOUR = 3600 * SECOND
pytestmark = needs_chromium


def test_the_code_leaves_the_address_and_the_page_survives_a_reload(browser):
    with opened(browser, desk()) as page:
        page.locator("canvas[data-paint]").first.wait_for()
        assert "#" not in page.url
        assert page.context.cookies() == []
        page.reload()
        page.get_by_text("2 nodes, 5 devices").wait_for()
        assert page.faults == []


def test_the_address_works_once(browser):
    with served(desk()) as (address, _, _):
        for expected in ("2 nodes, 5 devices", "this address was used before"):
            context = browser.new_context()
            page = context.new_page()
            page.goto(address)
            page.get_by_text(expected).wait_for(timeout=PATIENCE)
            context.close()


def test_what_waits_is_explained_and_has_a_story(browser):
    with opened(browser, desk()) as page:
        tab(page, "Waiting")
        page.get_by_role("button", name="pod ml/waits").click()
        page.get_by_role("heading", name="What would help").wait_for()
        other = page.get_by_role("listitem").filter(has_text="node(s) were unschedulable")
        assert other.inner_text() == "1 node(s) were unschedulable: n2"
        page.get_by_role("button", name="Show its story").click()
        page.get_by_text("could serve the request now").wait_for()
        page.get_by_role("button", name="n2", exact=True).click()
        page.get_by_role("complementary", name="Chosen node").get_by_text("n2").wait_for()
        assert page.faults == []


def test_what_waits_is_grouped_by_cause_and_the_first_cause_has_a_remedy(browser):
    with opened(browser, desk([*cluster(), *waiting_pods(6, namespace="vision", count=3)])) as page:
        tab(page, "Waiting")
        page.get_by_role("heading", level=3).first.wait_for()
        causes = page.get_by_role("heading", level=3).all_inner_texts()
        assert [text.split(" ", 1)[1] for text in causes] == [
            "no node has 3 gpus, the largest has 2", "no node has 2 gpus free, the best has 1",
        ]  # fmt: skip
        page.get_by_text("6 wait, the longest").wait_for()
        page.get_by_text("confirmed for vision-5").wait_for()
        page.get_by_text("6 pods and claims").click()
        page.get_by_role("button", name="pod vision/vision-3").click()
        page.get_by_role("heading", name="What would help").wait_for()
        assert page.faults == []


def test_a_view_has_an_address_that_reloads_and_goes_back(browser):
    with opened(browser, desk()) as page:
        tab(page, "Waiting")
        page.get_by_role("button", name="pod ml/waits").click()
        page.get_by_role("heading", name="What would help").wait_for()
        assert page.url.endswith("#/waiting/pod/ml/waits")
        page.reload()
        page.get_by_role("heading", name="What would help").wait_for()
        tab(page, "What if")
        page.get_by_role("button", name="Add to the list").click()
        page.get_by_role("button", name="What happens?").click()
        page.get_by_text("2 nodes before, 3 after.").wait_for()
        page.reload()
        page.get_by_text("2 nodes before, 3 after.").wait_for()
        page.go_back()
        page.get_by_role("heading", name="What would help").wait_for()
        page.goto(page.url.partition("#")[0] + '#/what-if?changes=[{"add":{}}]')
        page.get_by_text("changes[0].add: {} is not a name").wait_for()
        assert page.faults == []


@pytest.mark.parametrize("time", range(6))
def test_an_address_given_while_the_page_begins_is_not_lost(browser, time):
    with opened(browser, desk()) as page:
        page.wait_for_timeout(40 * time)
        page.goto(page.url.partition("#")[0] + "#/story/pod/ml/runs")
        page.get_by_role("heading", name="pod ml/runs").wait_for()
        assert page.faults == []


def test_the_list_comes_first_on_a_phone(browser):
    with opened(browser, desk()) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        tab(page, "Waiting")
        pod = page.get_by_role("button", name="pod ml/waits")
        page.get_by_role("heading", level=3).first.wait_for()  # its cause
        assert page.locator(".waiting .list").bounding_box()["height"] > 150
        pod.click()
        page.get_by_role("heading", name="What would help").wait_for()
        page.get_by_role("button", name="All that waits").click()
        pod.wait_for()
        assert page.faults == []


def test_the_story_of_a_pod_that_runs_goes_from_its_claim_to_its_events(browser):
    objects = cluster()
    runs = next(item for item in objects if item["metadata"]["name"] == "runs")
    reported = {"resourceID": "k8s.gpu/gpu=d0", "health": "Unhealthy"}
    runs["status"] = {
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResourcesStatus": [{"name": "claim:g", "resources": [reported]}],
            }
        ]
    }
    objects.append(event("Pod", "runs", 1, message=HOSTILE))
    with opened(browser, desk(objects)) as page:
        page.get_by_role("searchbox").fill("n1")
        page.get_by_role("button", name="pod ml/runs").click()
        page.get_by_text("was chosen").wait_for()
        page.get_by_role("cell", name="the first of 2 devices that could serve it").wait_for()
        page.get_by_role("cell", name="k8s.gpu/gpu=d0").wait_for()
        page.get_by_role("region", name="Events").get_by_role("cell", name=HOSTILE).wait_for()
        assert page.faults == []


def test_what_if_tells_who_starts(browser):
    with opened(browser, desk()) as page:
        tab(page, "What if")
        page.get_by_label("Node", exact=True).fill("n1")
        page.get_by_role("button", name="Add to the list").click()
        page.get_by_role("button", name="What happens?").click()
        page.get_by_text("2 nodes before, 3 after. Every pod has a node.").wait_for()
        nodes = page.get_by_role("list", name="Nodes that change").get_by_role("listitem")
        assert nodes.all_inner_texts() == ["new-1-n1 new, + ml/waits"]
        # Of the nodes where such a pod fits, those on the map can be clicked: that fills in the next.
        page.get_by_role("row", name="ml/waits 2 gpu").wait_for()
        page.get_by_role("row", name="ml/runs").get_by_role("button", name="n1", exact=True).click()
        assert page.get_by_label("Node", exact=True).input_value() == "n1"
        assert page.faults == []


def test_the_nodes_of_a_change_are_listed_and_a_click_on_the_map_names_one(browser):
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    with opened(browser, desk(objects)) as page:
        tab(page, "What if")
        page.get_by_role("application").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert page.get_by_label("Node", exact=True).input_value() == "n3"
        page.get_by_label("Node", exact=True).fill("n1")
        page.get_by_role("combobox", name="Change").select_option("remove")
        page.get_by_role("button", name="Add to the list").click()
        page.get_by_role("button", name="What happens?").click()
        nodes = page.get_by_role("list", name="Nodes that change").get_by_role("listitem")
        nodes.first.wait_for()
        assert nodes.all_inner_texts() == ["n1 removed, \N{MINUS SIGN} ml/runs", "n3 + ml/runs"]
        nodes.get_by_role("button", name="n3").click()
        assert page.get_by_label("Node", exact=True).input_value() == "n3"
        assert page.faults == []


@pytest.mark.parametrize("path", ["waiting", "story"])
def test_a_pod_that_is_gone_is_told_with_what_may_have_happened(browser, path):
    with opened(browser, desk()) as page:
        page.get_by_text("2 nodes").wait_for()
        page.goto(page.url.partition("#")[0] + f"#/{path}/pod/ml/gone")
        page.get_by_text("404: pod ml/gone not found").wait_for()
        page.get_by_text("it has ended or was deleted since").wait_for()
        assert page.get_by_role("alert").count() == 1
        assert page.faults == []


def test_views_without_anything_to_show_say_so(browser):
    with opened(browser, desk([])) as page:
        page.get_by_text("This cluster has no nodes.").wait_for()
        tab(page, "Waiting")
        page.get_by_text("Nothing waits for devices. 0 of 0 devices are free.").wait_for()
        tab(page, "What if")
        page.get_by_text("There are no nodes of which one could ask.").wait_for()
        tab(page, "Story")
        page.get_by_label("Pod").fill("ml/gone")
        page.get_by_role("button", name="Show its story").click()
        page.get_by_text("404: pod ml/gone not found").wait_for()
        assert page.faults == []


def test_no_view_is_wider_than_a_phone(browser, tmp_path):
    outputs.write(result(), tmp_path, parquet=False)
    found = {}
    with opened(browser, desk()) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        for path in (
            "fleet",
            "waiting/pod/ml/waits",
            "story/pod/ml/runs",
            'what-if?changes=[{"add":"n1"}]',
        ):
            page.get_by_text("dralab").first.wait_for()
            page.goto(page.url.partition("#")[0] + f"#/{path}")
            page.wait_for_timeout(800)
            found[path] = page.evaluate(BEYOND)
        # The cells of a row stand below each other, named by their columns.
        cell = page.get_by_role("row", name="ml/waits").first.get_by_role("cell").first
        assert (
            cell.evaluate("each => getComputedStyle(each, '::before').content") == '"What happens"'
        )
        assert cell.bounding_box()["width"] > 300
    with opened(browser, RunDesk(tmp_path)) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_role("img").first.wait_for()
        found["run"] = page.evaluate(BEYOND)
    assert {path: over for path, over in found.items() if over} == {}


def test_what_a_waiting_pod_could_use_lights_up_and_a_help_is_tried_on_the_map(browser):
    with opened(browser, desk()) as page:
        tab(page, "Waiting")
        page.get_by_role("button", name="pod ml/waits").click()
        page.get_by_text("1 could serve it now").wait_for()
        page.get_by_text("1 suit, but are in use, tainted or blocked").wait_for()
        page.get_by_role("button", name="Show on the map").first.click()
        page.get_by_text("it starts on n1 with 2 devices").wait_for()
        page.get_by_role("button", name="What it could use").click()
        page.get_by_text("1 could serve it now").wait_for()
        assert page.faults == []


def test_a_pod_is_moved_by_keys_and_the_answer_comes_at_once(browser):
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    with opened(browser, desk(objects)) as page:
        tab(page, "What if")
        page.get_by_role("application").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("m")
        page.get_by_text("Moving ml/runs: arrows choose a node").wait_for()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.get_by_text("move ml/runs to n3").wait_for()
        page.get_by_role("rowheader", name="ml/waits", exact=True).wait_for()
        assert page.faults == []


def test_the_steps_of_a_plan_play(browser):
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    with opened(browser, desk(objects)) as page:
        tab(page, "What if")
        page.get_by_role("button", name="Which pods have to move?").click()
        page.get_by_role("button", name="Play").click()
        page.get_by_role("row", name="2. starts").and_(page.locator("[aria-current]")).wait_for()
        page.get_by_role("button", name="Play").wait_for()
        assert page.faults == []


def test_the_map_is_used_by_keyboard(browser):
    with opened(browser, desk()) as page:
        canvas = page.get_by_role("application")
        canvas.focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("complementary", name="Chosen node").get_by_text("d0").wait_for()
        page.keyboard.press("ArrowRight")
        page.get_by_role("heading", name="n2").wait_for()
        page.keyboard.press("+")
        page.keyboard.press("0")
        page.keyboard.press("Escape")
        page.get_by_role("complementary").wait_for(state="detached")
        page.get_by_role("tab", name="Fleet").focus()
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("tab", name="Waiting").get_attribute("aria-selected") == "true"
        assert page.faults == []


# Keeps what the map shows under a name, once all that is under way has been drawn. The answer is the
# largest difference of a colour, 0 to 255, to what is kept under another name.
DIFFERENCE = """async ([name, other]) => {
  for (let frame = 0; frame < 8; frame++) await new Promise(requestAnimationFrame);
  const { width, height } = document.querySelector(".map > canvas");
  const context = document.querySelector(".map > canvas").getContext("2d");
  const seen = context.getImageData(0, 0, width, height).data;
  const kept = (window.kept ??= {}), before = kept[other] ?? seen;
  kept[name] = seen;
  return seen.reduce((most, each, at) => Math.max(most, Math.abs(each - before[at])), 0);
}"""


@pytest.mark.parametrize("closer", [0, 4])
def test_a_map_that_was_moved_is_what_is_drawn_anew_there(browser, closer):
    names = [f"n{number}" for number in range(60)]
    objects = [worker(name) for name in names]
    for name in names:
        objects += pool(name, device("d0"), device("d1"), node=name)
    with opened(browser, desk(objects)) as page:
        canvas = page.locator("canvas[data-paint]")
        canvas.focus()
        for _ in range(closer):
            page.keyboard.press("+")
        page.evaluate(DIFFERENCE, ["anew", ""])
        for key, times in [("Left", 3), ("Up", 1), ("Right", 8), ("Down", 2)]:
            canvas.focus()
            for _ in range(times):
                page.keyboard.press(f"Shift+Arrow{key}")
                assert page.evaluate(DIFFERENCE, ["moved", "anew"]) > 100, key
            # A search makes the whole picture another one, and its end has it drawn from nothing.
            page.get_by_role("searchbox").fill("d1")
            assert page.evaluate(DIFFERENCE, ["searched", "moved"]) > 50, key
            page.get_by_role("searchbox").fill("")
            # The soft edges of letters differ a little.
            assert page.evaluate(DIFFERENCE, ["anew", "moved"]) < 50, key
        assert page.faults == []


def test_a_search_counts_and_the_table_lists_what_is_found(browser):
    with opened(browser, desk()) as page:
        page.get_by_role("searchbox").fill("ml/runs")
        page.get_by_text("1 device on 1 node", exact=True).wait_for()
        page.get_by_role("button", name="Table").click()
        page.get_by_role("button", name="n1").wait_for()
        assert page.get_by_role("button", name="n2").count() == 0
        assert page.faults == []


def hostile_cluster():
    name = HOSTILE
    holding = claim("x", request("r0", "gpu"), namespace=name)
    result = {"request": name, "driver": name, "pool": name, "device": name}
    holding["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": "u"}],
    }
    waits = pod(name, namespace=name, claims={name: "wants"})
    waits["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": name, "message": name}]
    }
    return [
        *cluster(),
        worker(name, labels={"topology.kubernetes.io/zone": name, "example.com/rack": name}),
        *pool(name, device(name, driver=name), node=name, driver=name),
        stored(holding),
        stored(claim("wants", request(name, "gpu", count=9), namespace=name)),
        stored(waits),
    ]


def test_hostile_names_are_shown_and_do_nothing(browser):
    with opened(browser, desk(hostile_cluster())) as page:
        page.get_by_role("searchbox").fill(HOSTILE)
        page.get_by_role("heading", name=HOSTILE).wait_for()
        page.get_by_role("button", name="Table").click()
        page.get_by_role("button", name=HOSTILE, exact=True).first.wait_for()
        tab(page, "Waiting")
        page.get_by_role("button", name=f"pod {HOSTILE}").first.click()
        page.get_by_role("button", name="Show its story").click()
        page.get_by_role("heading", name="Conditions").wait_for()
        tab(page, "What if")
        page.get_by_label("Node", exact=True).fill(HOSTILE)
        page.get_by_role("button", name="Add to the list").click()
        page.get_by_role("button", name="What happens?").click()
        page.get_by_text("nodes before").wait_for()
        assert page.locator("img").count() == 0
        assert page.faults == []


def test_a_script_that_is_put_into_the_page_does_not_run(browser):
    with opened(browser, desk()) as page:
        page.get_by_text("2 nodes").wait_for()
        assert page.evaluate(
            """() => {
              const made = document.createElement("script");
              try { made.textContent = "window.ran = 1"; document.body.append(made); } catch {}
              try { document.body.insertAdjacentHTML("beforeend", "<b onclick=1>"); } catch {}
              return window.ran ?? "did not run";
            }"""
        ) == "did not run"  # fmt: skip


@needs_axe
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_any_view(browser, scheme, width, tmp_path):
    outputs.write(result(), tmp_path, parquet=False)
    found = {}
    size = {"width": width, "height": 844}
    with opened(browser, desk(), color_scheme=scheme) as page:
        page.set_viewport_size(size)
        page.get_by_role("application").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("complementary").wait_for()
        found["fleet"] = axe(page)
        page.get_by_role("button", name="Table").click()
        found["table"] = axe(page)
        tab(page, "Story")
        found["no story"] = axe(page)
        tab(page, "Waiting")
        page.get_by_role("heading", level=3).first.wait_for()
        found["causes"] = axe(page)
        page.get_by_role("button", name="pod ml/waits").click()
        page.get_by_role("heading", name="What would help").wait_for()
        found["waiting"] = axe(page)
        page.get_by_role("button", name="Show on the map").first.click()
        page.get_by_text("it starts on n1 with 2 devices").wait_for()
        found["tried"] = axe(page)
        page.get_by_role("button", name="Show its story").click()
        page.get_by_text("could serve the request now").wait_for()
        found["story"] = axe(page)
        tab(page, "What if")
        page.get_by_role("button", name="Add to the list").click()
        page.get_by_role("button", name="What happens?").click()
        page.get_by_text("nodes before").wait_for()
        found["what if"] = axe(page)
        page.get_by_role("button", name="Which pods have to move?").click()
        page.get_by_text("pods fit").wait_for()
        found["moves"] = axe(page)
        page.goto(page.url.partition("#")[0] + "#/waiting/pod/ml/gone")
        page.get_by_role("alert").wait_for()
        found["gone"] = axe(page)
    with opened(browser, desk([], live=True), color_scheme=scheme) as page:
        page.set_viewport_size(size)
        page.get_by_text("This cluster has no nodes.").wait_for()
        page.locator("summary").click()
        found["empty, changes open"] = axe(page)
        page.keyboard.press("Escape")
        tab(page, "Waiting")
        found["nothing waits"] = axe(page)
    with opened(browser, desk(live=True), color_scheme=scheme) as page:
        page.set_viewport_size(size)
        page.get_by_text("2 nodes").wait_for()
        tab(page, "Time")
        page.get_by_role("img").first.wait_for()
        found["history"] = axe(page)
    refused = Desk(ForbiddenSource(), ManualClock(), "a lab", live=True)
    with opened(browser, refused, color_scheme=scheme) as page:
        page.get_by_role("alert").wait_for()
        found["forbidden"] = axe(page)
    with opened(browser, RunDesk(tmp_path), color_scheme=scheme) as page:
        page.set_viewport_size(size)
        page.get_by_role("img").first.wait_for()
        found["run"] = axe(page)
    assert {view: faults for view, faults in found.items() if faults} == {}

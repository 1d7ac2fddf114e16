"""Reports of simulations in a real browser: they fit a phone, and tell what they draw to everyone."""

import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation import dispatch
from dralab.simulation.reports import difference, gantt
from dralab.simulation.reports import run as reports
from dralab.simulation.scenario import scenario as scenarios
from web.chromium import BEYOND, axe, needs_axe, needs_chromium

pytestmark = needs_chromium
DAY = (
    "name: a day\nfleet: {{nodes: [{{name: n, count: 3, cpu: 8, gpus: 2, model: A100}}]}}\n"
    "workload: {{pods: [{{name: p, count: 40, every: 5m, duration: 40m, cpu: 1, gpus: 1, user: ann}}]}}\n"
    "faults: [{{node: n-0, at: 20m, for: 1h}}]\nscheduler: {scheduler}\n"
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "39-campaign" / "grid.yaml"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the pages of a run, of one with too many boxes, of a difference and of a campaign."""
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for scheduler in ("firstfit", "worstfit"):
        path = folder / f"{scheduler}.yaml"
        path.write_text(DAY.format(scheduler=scheduler))
        result = dispatch.begin(scenarios.load(path)).go()
        reports.write(result, folder / scheduler, parquet=False)
    found["run"] = folder / "firstfit" / "report.html"
    runs = [difference.read(folder / name) for name in ("firstfit", "worstfit")]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("difference", "dense difference"):
            found[name] = folder / f"{name}.html"
            difference.page(*runs).write(found[name])
            patch.setattr(gantt, "MOST_RECTS", 2)
        found["dense run"] = folder / "dense.html"
        reports.page(result).write(found["dense run"])
    words = ["simulate", "campaign", str(EXAMPLE), "--workers", "1", "--write", str(folder / "c")]
    assert CliRunner().invoke(main, words).exit_code == 0
    found["campaign"] = folder / "c" / "report.html"
    return found


@contextmanager
def opened(browser, file, **options):
    """Show a file; it asks for nothing and no error is raised in it."""
    context = browser.new_context(**options)
    page = context.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith("file:") or faults.append(asked.url))
    page.goto(file.as_uri())
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(200)  # charts are drawn once their width is known
    yield page
    context.close()
    assert faults == []


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_reports_fit_a_phone_and_axe_finds_no_fault_in_them(browser, pages, scheme):
    found = {}
    for name, file in pages.items():
        for size in (PHONE, {"width": 1440, "height": 900}):
            with opened(browser, file, viewport=size, color_scheme=scheme) as page:
                found[name, size["width"]] = (page.evaluate(BEYOND), axe(page))
    assert found
    assert {key: seen for key, seen in found.items() if seen != (0, [])} == {}


def test_letters_keep_their_size_on_a_phone(browser, pages):
    with opened(browser, pages["run"], viewport=PHONE) as page:
        sizes = page.evaluate(
            """() => [...document.querySelectorAll("section > svg")].map((svg) => {
              const [,, width] = svg.getAttribute("viewBox").split(" ");
              return svg.clientWidth / width;
            })"""
        )
        assert len(sizes) >= 4
        assert set(sizes) == {1}


def test_curves_are_told_apart_without_colour(browser, pages):
    with opened(browser, pages["run"]) as page:
        chart = page.locator("section").filter(has=page.get_by_role("heading", name="In use"))
        curves = chart.locator("section > svg path[fill=none], svg[role=img] path[fill=none]")
        dashes = [each.get_attribute("stroke-dasharray") for each in curves.all()]
        assert len(dashes) == 3  # cpu, memory, and gpu, which gpu[A100] would cover
        assert len(set(dashes)) == 3
        assert chart.get_by_text("gpu, gpu[A100]").is_visible()


@pytest.mark.parametrize("name", ["run", "dense run", "difference", "dense difference"])
def test_charts_tell_by_keys_and_by_touch_what_they_draw(browser, pages, name):
    with opened(browser, pages[name], viewport=PHONE, has_touch=True) as page:
        tip = page.locator("#tip")
        charts = page.locator("section > :is(svg, canvas)")
        told = set()
        for chart in charts.all():
            chart.focus()
            for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
                page.keyboard.press(key)
                assert tip.is_visible()
                told.add(tip.inner_text())
            box = tip.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            page.keyboard.press("Escape")
            assert not tip.is_visible()
        assert len(told) > charts.count()
        if name == "run":
            charts.first.tap()
            assert re.search(r"^cpu: [\d.]+ %$", tip.inner_text(), re.MULTILINE)


def test_a_number_says_what_it_means_where_it_stands(browser, pages):
    with opened(browser, pages["run"], has_touch=True) as page:
        tip = page.locator("#tip")
        meaning = "turnaround / max(run time, 10 s); at least 1"
        card = page.get_by_role("button", name="mean bounded slowdown")
        cell = page.get_by_role("button", name="bounded_slowdown_p95")
        for shows in (card.hover, card.focus, cell.hover, cell.focus, cell.tap):
            page.mouse.move(0, 0)
            page.keyboard.press("Escape")
            page.evaluate("document.activeElement.blur()")
            assert not tip.is_visible()
            shows()
            assert tip.inner_text() == meaning
        assert cell.get_attribute("aria-description") == meaning
        heading = page.get_by_role("columnheader", name="value")
        heading.get_by_role("button").press("Enter")
        assert heading.get_attribute("aria-sort") == "ascending"


def test_bars_of_a_campaign_have_units_and_errors(browser, pages):
    with opened(browser, pages["campaign"]) as page:
        waits = page.get_by_role("img", name=re.compile("^wait_mean. worstfit: .* min.* ± .* min"))
        assert waits.locator("path.error").count() == 2
        used = page.get_by_role("img", name=re.compile("^utilisation_gpu. worstfit: .* % ± .* %"))
        assert used.locator("text.value").first.text_content().endswith(" %")

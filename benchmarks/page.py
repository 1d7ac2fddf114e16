"""How the page of `dralab ui` draws a large fleet in Chromium: time of frames, memory, first paint.

    python -m benchmarks.page [NODES]

10,000 nodes of eight devices, in headless Chromium, which has no graphics card here and draws by
software. The map is moved in each frame for some seconds: all of it, a tenth, and some nodes.
Beside frames per second, which other programs on the machine lower: the processor time of the
page's main thread and of all of the browser's processes for each frame. 30 frames a second need
the main thread below 33 ms. Needs Playwright (`pip install --group browser`).
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from tools.page_pictures import BROWSER, SWITCHES, cluster_desk, fleet, served

from benchmarks.allocation import say

SECONDS = 5
TICK = os.sysconf("SC_CLK_TCK")
# Notes when the map was drawn first, by the page's own clock.
FIRST = """
new MutationObserver((changes) => {
  if (!window.mapDrawn && changes.some(({ target }) => target.dataset?.paint)) {
    window.mapDrawn = performance.now();
  }
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-paint"] });
"""
# Drags the map to and fro, once in each frame; the page draws in the next one.
MOVE = """async ([seconds]) => {
  const canvas = document.querySelector(".map > canvas");
  const point = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {
    bubbles: true, pointerId: 1, clientX: x, clientY: 300, buttons: 1,
  }));
  canvas.setPointerCapture = () => {};
  point("pointerdown", 400);
  const began = performance.now(), paints = [];
  let frames = 0;
  while (performance.now() - began < seconds * 1000) {
    await new Promise(requestAnimationFrame);
    paints.push(Number(canvas.dataset.paint));
    point("pointermove", 400 + 120 * Math.sin(frames++ / 10));
  }
  point("pointerup", 400);
  paints.sort((a, b) => a - b);
  return { frames, seconds: (performance.now() - began) / 1000, draw: paints[paints.length >> 1] };
}"""
ZOOM = """([turns]) => {
  const canvas = document.querySelector(".map > canvas");
  for (let turn = 0; turn < turns; turn++) {
    canvas.dispatchEvent(new WheelEvent("wheel", {
      deltaY: -100, clientX: 400, clientY: 300, bubbles: true, cancelable: true,
    }));
  }
}"""


def tree(root: int) -> list[int]:
    """Return the processes of the browser, by their parents."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = [root]
    for process in found:
        found += [each for each, parent in parents.items() if parent == process]
    return found


def used(processes: list[int]) -> float:
    """Return the processor time of processes, in seconds."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


def resident(process: int) -> int:
    """Return the memory of a process in bytes, what it shares counted in part."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no memory of {process}")


def renderer(processes: list[int]) -> int:
    """Return the process of the page: of the renderers the largest."""
    pages = [
        each
        for each in processes
        if b"--type=renderer" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return max(pages, key=resident)


def main_thread(session: Any) -> float:
    """Return the processor time of the page's main thread, in seconds."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def main() -> None:
    from playwright.sync_api import sync_playwright

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    desk = cluster_desk(fleet(count))
    began = time.process_time()
    size = len(desk.fleet())
    say(
        f"answer with {count:,} nodes",
        f"{time.process_time() - began:.2f} s",
        f"{size / 1e6:.1f} MB",
    )
    desk.waiting()
    with sync_playwright() as playwright, served(desk) as address:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=[*SWITCHES, "--enable-precise-memory-info"]
        )
        root = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        processes = tree(next(each["id"] for each in root if each["type"] == "browser"))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(FIRST)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = used(processes)
        page.goto(address)
        page.wait_for_function("() => window.mapDrawn", timeout=120_000)
        page.wait_for_timeout(1_000)
        processes = tree(processes[0])
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        drawn = page.evaluate("window.mapDrawn")
        say("first paint of the page", f"{first:.0f} ms", "by the clock of the wall")
        say(
            "the map drawn first",
            f"{drawn:.0f} ms",
            f"{used(processes) - before:.2f} s of processor time",
        )
        for what, turns in (
            ("all of it", 0),
            ("a fifth of it", 7),
            ("a fiftieth of it", 5),
            ("some nodes", 9),
        ):
            page.evaluate(ZOOM, [turns])
            page.wait_for_timeout(300)
            main_before, all_before = main_thread(session), used(processes)
            found = page.evaluate(MOVE, [SECONDS])
            main_time = (main_thread(session) - main_before) / found["frames"]
            all_time = (used(processes) - all_before) / found["frames"]
            say(
                f"a frame of {what}",
                f"{1000 * main_time:.1f} ms",
                f"of the main thread ({found['draw']:.1f} ms drawing by the clock), "
                f"{1000 * all_time:.1f} ms of all processes; "
                f"{found['frames'] / found['seconds']:.0f} frames/s",
            )
        session.send("HeapProfiler.enable")
        session.send("HeapProfiler.collectGarbage")
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        size = resident(renderer(processes))
        say(
            "memory of the page's process",
            f"{size / 1e6:.0f} MB",
            f"{heap / 1e6:.0f} MB of it script",
        )
        browser.close()


if __name__ == "__main__":
    main()

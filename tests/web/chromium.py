"""Chromium for tests: a browser, a desk that it shows, and what axe-core says of a page."""

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dralab.apiserver.http.connections.listening import listen
from dralab.apiserver.http.connections.serving import HttpServer
from dralab.apiserver.http.connections.serving_thread import ServingThread
from dralab.kernel.clock import WallClock
from dralab.web.desk import Desk
from dralab.web.own_server import PageApp
from dralab.web.sources import FixedSource, UnreadableClusterError
from web.pages import HOSTILE, cluster

BROWSER = os.environ.get("DRALAB_BROWSER") or shutil.which("chromium")
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000
BEYOND = "document.documentElement.scrollWidth - innerWidth"
"""By how many pixels a page is wider than its window."""

needs_chromium = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium; DRALAB_BROWSER names one (Debian: chromium)"
    ),
]
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: run `make ui`")


@pytest.fixture(scope="module")
def browser():
    """Return a browser of the module's own."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install --group browser"
    )
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        yield found
        found.close()


@contextmanager
def served(desk):
    app = PageApp(desk)
    thread = ServingThread(http := HttpServer(app, listen("127.0.0.1", 0)))
    thread.start()
    try:
        yield f"{http.url}/ui#{app.code}", thread, app
    finally:
        with suppress(RuntimeError):  # a test may have stopped it
            thread.stop()


@contextmanager
def opened(browser, desk, **options):
    """Open the page; what went wrong in it, and what it asked of others, is in `page.faults`."""
    with served(desk) as (address, thread, app):
        context = browser.new_context(viewport={"width": 1100, "height": 700}, **options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.faults = []
        page.thread, page.app = thread, app
        page.asked = []
        page.on("pageerror", lambda error: page.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (page.faults.append("dialog"), dialog.dismiss()))
        page.on(
            "console",
            lambda message: "Content Security" in message.text and page.faults.append(message.text),
        )
        origin = address.partition("/ui")[0]
        page.on("request", lambda asked: page.asked.append(urlsplit(asked.url).path))
        page.on(
            "request",
            lambda asked: asked.url.startswith((origin, "data:")) or page.faults.append(asked.url),
        )
        page.goto(address)
        yield page
        context.close()


def tab(page, name):
    """Choose a view."""
    page.get_by_role("tab", name=name).click()


def axe(page):
    """Return the faults that axe-core finds: rule, place and how to mend it."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run({resultTypes: ['violations']})")
    return [
        (fault["id"], fault["impact"], node["html"][:200], node["failureSummary"][-200:])
        for fault in found["violations"]
        for node in fault["nodes"][:3]
    ]


def desk(objects=None, *, live=False):
    """Return the desk of a cluster, with the clock of the machine."""
    source = FixedSource(cluster() if objects is None else objects)
    return Desk(source, WallClock(), "a lab", live=live)


class ForbiddenSource:
    """A cluster that may not be read."""

    def revision(self):
        return None

    def read(self):
        raise UnreadableClusterError(f"cannot list nodes: {HOSTILE} is forbidden", 403)

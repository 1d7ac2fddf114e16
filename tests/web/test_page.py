"""The page that is built: it is what its sources make, it is small, and it loads nothing."""

import base64
import hashlib
import re
from pathlib import Path

from dralab.web.page import SOURCES, page, page_headers

UI = Path(__file__).parents[2] / "ui"
LARGEST = 1_000_000


def hash_of_sources():
    """The same as in `ui/build.mjs`."""
    digest = hashlib.sha256()
    for path in [UI / "build.mjs", UI / "package-lock.json", *sorted((UI / "src").iterdir())]:
        digest.update(f"{path.relative_to(UI).as_posix()}\0".encode())
        digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def test_the_page_is_what_its_sources_make():
    found = SOURCES.search(page())
    assert found, "page.html does not say from which sources it was built"
    assert found[1].decode() == hash_of_sources(), (
        "run `make ui` and commit src/dralab/web/page.html"
    )


def test_the_page_has_at_most_a_megabyte():
    assert len(page()) <= LARGEST


def test_the_page_loads_nothing_from_elsewhere():
    text = page().decode()
    assert not re.findall(r"""<(?:script|img|iframe|object|embed)[^>]+src=""", text)
    assert re.findall(r"<link[^>]*>", text) == ['<link rel="icon" href="data:,">']
    assert not re.findall(r"@import|url\(", text.split("</style>")[0])


def test_the_policy_names_the_script_and_the_style_and_allows_nothing_else():
    headers = dict(page_headers())
    policy = dict(
        each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    text = page().decode()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert (
        policy["script-src"]
        == f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    )
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"

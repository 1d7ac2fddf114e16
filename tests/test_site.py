"""The site of documents: every page is in it, and it needs nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PICTURE = re.compile(r"!\[[^\]]*\]\(")
FROM_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//")


@pytest.mark.conformance
def test_the_site_is_whole(tmp_path):
    for needed in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(needed, reason="the group `docs` is not installed: make docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    done = subprocess.run(
        [*command, "-c", str(DOCS / "_site"), str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    front = (tmp_path / "README.html").read_text()
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.glob("**/*.md")]
    assert len(pages) > 40
    assert [
        str(page) for page in pages if str(page) not in front and page.name != "README.html"
    ] == []
    for source in DOCS.glob("**/*.md"):
        pictures = len(PICTURE.findall(source.read_text()))
        page = (tmp_path / source.relative_to(DOCS)).with_suffix(".html").read_text()
        assert page.count("<img") == pictures, source.name
    assert "first-steps.html" in (tmp_path / "guides/install.html").read_text().split("<article")[1]
    for page in tmp_path.glob("**/*.html"):
        assert not FROM_ELSEWHERE.search(page.read_text()), page.name

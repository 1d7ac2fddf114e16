"""The page of first steps, followed with the real kubectl: its commands print what it says."""

import shutil

import pytest

import pages

PAGE = pages.CHECKOUT / "docs" / "first-steps.md"


@pytest.mark.conformance
@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on the PATH")
def test_a_newcomer_sees_what_the_page_says(tmp_path):
    assert pages.follow(PAGE.read_text(encoding="utf-8"), tmp_path) >= 10

"""The tutorials, followed from the first command to the last: everything prints what the page says."""

import importlib.util
from pathlib import Path

import pytest

import pages

TUTORIALS = sorted((pages.CHECKOUT / "docs/tutorials").glob("*.md"))
NEEDS = {"ship-a-driver": ["grpc"], "test-python-code": ["kubernetes"]}
pytestmark = pytest.mark.conformance


def test_there_is_one_for_each_kind_of_user():
    assert len(TUTORIALS) == 5


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_reader_sees_what_a_tutorial_says(page: Path, tmp_path: Path) -> None:
    for name in NEEDS.get(page.stem, ()):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    assert len(page.read_text().splitlines()) <= 150
    assert pages.follow(page.read_text(encoding="utf-8"), tmp_path) >= 4

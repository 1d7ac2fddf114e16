"""The recipes of CONTRIBUTING work: each is carried out in a copy of the sources."""

import shutil

import pytest

from pages import CHECKOUT, changed, follow, recipes

RECIPES = recipes()


@pytest.mark.thorough
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_does_what_it_says(title, tmp_path):
    for name in ("src", "examples/60-find-the-bug"):
        shutil.copytree(CHECKOUT / name, tmp_path / name)
    assert follow(RECIPES[title], tmp_path, PYTHONPATH=str(tmp_path / "src")) > 0


def test_a_change_is_made_where_its_context_stands_once():
    assert changed("zero\none\ntwo\n", " one\n-two\n+three\n") == "zero\none\nthree\n"
    for text in ("one\n", "one\ntwo\none\ntwo\n", "two one\ntwo\n"):
        with pytest.raises(AssertionError, match=r"stands there [02] times"):
            changed(text, " one\n-two\n")

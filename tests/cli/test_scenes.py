"""Thirty ways to wait, and the page for each: read one aloud before you change it.

`scenes/NAME.yaml` is added to `scenes/fleet.yaml`, unless its first line says otherwise;
`scenes/NAME.txt` is what `dralab explain` prints. RECORD_PAGES=1 writes the pages anew.
"""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.allocation.explanation.codes import CODES
from dralab.cli.main import main

SCENES = Path(__file__).parent / "scenes"
NAMES = sorted(path.stem for path in SCENES.glob("*.yaml") if path.stem != "fleet")
ARGUMENTS = re.compile(r"# dralab explain (.*)")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(SCENES)


def explained(name, *more):
    first = (SCENES / f"{name}.yaml").read_text().partition("\n")[0]
    given = ARGUMENTS.fullmatch(first)
    arguments = given[1].split() if given else ["-f", "fleet.yaml", "-f", f"{name}.yaml", "train"]
    return CliRunner().invoke(main, ["explain", *arguments, *more])


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_why(name):
    found = explained(name)
    assert found.exit_code == 1, found.output
    page = SCENES / f"{name}.txt"
    if os.environ.get("RECORD_PAGES"):
        page.write_text(found.stdout)
    assert found.stdout == page.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_on_a_screen_and_ends_in_words_for_an_event(name):
    lines = explained(name).stdout.splitlines()
    assert len(lines) <= 24
    (told,) = json.loads(explained(name, "-o", "json").stdout)
    assert told["code"] in CODES
    assert told["code"] in lines[0]
    assert len(told["reason"].encode()) <= 1024
    assert told["headline"][1:] in told["reason"]
    assert "…" not in told["reason"]

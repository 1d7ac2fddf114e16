"""The page about the first documents names tests that exist and commands that are there."""

import re
from pathlib import Path

from dralab.cli.main import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/seed-documents.md").read_text()
ROWS = re.findall(r"^\| .* \| (`.*`) \| (`tests/.*`) \|$", PAGE, re.MULTILINE)


def test_each_row_names_a_command_and_a_test_that_exist():
    assert len(ROWS) > 30
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))
    assert len(named) > 30
    for file, test in sorted(named):
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), test
    for command in re.findall(r"`dralab ([a-z-]+)", PAGE):
        assert command in main.list_commands(None)

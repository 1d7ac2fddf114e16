"""The terminal casts of the documents show what their commands print, and load nothing."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[1]
CASTS = sorted((ROOT / "docs" / "images").glob("cast-*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def texts(path):
    """Return the lines of a cast: its commands with their prompt, and what they print."""
    found = []
    for each in ET.parse(path).iter(f"{SVG}text"):  # noqa: S314 - our own file
        if each.get("class") == "c":
            found[-1] += f" {each.text}"
        else:
            found.append(each.text)
    return found


def test_there_are_casts():
    assert len(CASTS) >= 2


@pytest.mark.parametrize("path", CASTS, ids=[path.stem for path in CASTS])
def test_a_cast_shows_what_an_example_prints(path):
    # The outputs of examples are compared with what they print by test_examples.
    shown = texts(path)
    assert shown[0].startswith("$ dralab")
    commands = [line.removeprefix("$ ") for line in shown if line.startswith("$ ")]
    printed = [line for line in shown if not line.startswith("$ ")]
    examples = [
        folder
        for folder in (ROOT / "examples").iterdir()
        if (folder / "example.out").is_file()
        and set(commands) <= set((folder / "commands.sh").read_text().splitlines())
    ]
    assert len(examples) == 1, "run tools/terminal_casts.py"
    recorded = [line for line in (examples[0] / "example.out").read_text().splitlines() if line]
    left = iter(recorded)
    assert printed
    assert all(line in left for line in printed), "run tools/terminal_casts.py"


@pytest.mark.parametrize("path", CASTS, ids=[path.stem for path in CASTS])
def test_a_cast_is_a_picture_alone(path):
    text = path.read_text()
    assert "<script" not in text
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"') == 1
    root = ET.fromstring(text)  # noqa: S314 - our own file
    assert root.get("aria-label") == root.findtext(f"{SVG}title")

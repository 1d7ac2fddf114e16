"""The documentation is whole: generated pages are as made, links lead somewhere, no page is lonely."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dralab.cli.main import main

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def docs():
    spec = importlib.util.spec_from_file_location("docs_tool", ROOT / "tools" / "docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_is_what_make_docs_makes():
    # In a process of its own: commands remember by which names their help was first asked for.
    tool = [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_link_between_pages_leads_somewhere(docs):
    assert docs.dead_links() == []


def test_every_page_is_named_in_the_index(docs):
    assert docs.lonely_pages() == []


def commands(group, path=()):
    context = click.Context(group, info_name=" ".join(path) or "dralab")
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


@pytest.mark.parametrize(
    "command",
    [pytest.param(found, id=" ".join(path)) for path, found in commands(main)],
)
def test_every_command_shows_an_example(command):
    assert re.search(r"Examples?:", f"{command.help}\n{command.epilog}")


def test_no_source_file_is_too_long_to_read_at_one_sitting():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sorted(ROOT.glob("src/**/*.py"))
        if (lines := len(path.read_text().splitlines())) > 700
    }
    assert long == {}


def test_the_changelog_is_made_from_all_fragments(docs):
    # Whether it is written anew is for a release: everybody's changes would meet in one file.
    made = docs.changelog()
    fragments = [path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]
    assert len(fragments) > 10
    for path in fragments:
        assert path.read_text().strip().splitlines()[0] in made, path.name


def test_no_guide_installs_a_package_that_is_not_published():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    told = [path.name for path in pages if re.search(r"pip install '?dralab", path.read_text())]
    assert len(pages) > 20
    assert told == []

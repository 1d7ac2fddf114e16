"""The documentation is whole: generated pages are as made, links lead somewhere, no page is lonely."""

import importlib.util
import re
import sys
from pathlib import Path

import click
import pytest

from dralab.cli.kubectl_dra import main as kubectl_dra
from dralab.cli.main import main

ROOT = Path(__file__).parents[1]
IMPORT = re.compile(r"^from (dralab[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def tool(name):
    spec = importlib.util.spec_from_file_location(f"{name}_tool", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def docs():
    return tool("docs")


@pytest.fixture(scope="module")
def surface():
    return tool("api_surface")


def test_the_generated_pages_are_what_make_docs_makes(docs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["docs.py", "--check"])
    assert docs.main() == 0, capsys.readouterr().err


def test_nothing_public_changes_unannounced(surface):
    recorded = surface.SURFACE.read_text().splitlines()
    assert len(recorded) > 500
    assert list(surface.lines()) == recorded, "look at what `make surface` changes, and commit it"


def test_every_name_that_a_guide_imports_is_public(surface):
    public = surface.public_names()
    pages = [ROOT / "README.md", *ROOT.glob("docs/guides/*.md"), *ROOT.glob("examples/*/*.py")]
    pages.append(ROOT / "src/dralab/cli/driver_new.py")  # the project that it writes
    used = [
        (page.name, module, name)
        for page in pages
        for module, names in IMPORT.findall(page.read_text())
        for name in names.split(", ")
    ]
    assert len(used) > 40
    assert [
        each for each in used
        if each[2] not in public.get(each[1], ()) and public.get(each[1]) != ["*"]
        and not each[1].startswith("dralab.cli.") and each[1] != "dralab.values.names"
    ] == []  # fmt: skip


def test_every_link_between_pages_leads_somewhere(docs):
    assert docs.dead_links() == []


def test_the_glossary_is_in_alphabetical_order():
    text = (ROOT / "docs/concepts/glossary.md").read_text()
    terms = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(terms, key=str.casefold)


def test_every_page_ends_with_a_way_to_go_on(docs):
    assert docs.dead_ends() == []


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
    for path in fragments:
        assert path.read_text().strip().splitlines()[0] in made, path.name


def test_the_changelog_keeps_its_releases(docs):
    made = docs.changelog()
    released = made + "\n## 0.3.0 (2027-12-01)\n\n### Features\n\n- It begins.\n"
    assert docs.changelog(released) == released


def test_no_guide_installs_a_package_that_is_not_published():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    told = [path.name for path in pages if re.search(r"pip install '?dralab", path.read_text())]
    assert len(pages) > 20
    assert told == []


# The changelog tells old words as such; the recipe of a new command has one that does not exist.
OTHER_WORDS = {"CHANGELOG.md", "CONTRIBUTING.md"}
FENCED = re.compile(r"^ *```[a-z]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:dralab|kubectl dra) [^`\n]+)`")
TYPED = re.compile(
    r"(?:^|[|(&;]|\bdo|run:)\s*(?:\$ )?((?:dralab|kubectl dra) [^|\n)#>]*)", re.MULTILINE
)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def spoken():
    """Yield every command of dralab that a page or an example shows, with its place."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]:
        if page.name not in OTHER_WORDS:
            text = page.read_text().replace("\\\n", " ")
            typed = [each for block in FENCED.findall(text) for each in TYPED.findall(block)]
            yield from ((page.name, each) for each in [*typed, *SPAN.findall(text)])
    scripts = [*ROOT.glob("examples/**/*.sh"), *ROOT.glob("examples/**/*.yml")]
    for page in [*scripts, *ROOT.glob(".github/**/*.yml")]:
        text = page.read_text().replace("\\\n", " ")
        yield from ((page.parent.name, each) for each in TYPED.findall(text))


def unknown_words(line):
    """Return what is no command and no option of today in a command line."""
    words = re.split(r"[|&$]", QUOTED.sub("x", line))[0].split()
    words = words[: words.index("--")] if "--" in words else words
    command = main if words[0] == "dralab" else kubectl_dra
    words = words[1 if words[0] == "dralab" else 2 :]
    context = click.Context(command)
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(context, words[0])
        if found is None:
            return [] if command is main.get_command(context, "help") else [words[0]]
        command, context, words = found, click.Context(found, parent=context), words[1:]
    known = {name for each in command.params for name in [*each.opts, *each.secondary_opts]}
    known |= {"--help", "--version", "-h"}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [
        each for each in given if each not in known and (each[1] == "-" or each[:2] not in known)
    ]


def test_pages_and_examples_say_todays_words():
    found = [*spoken()]
    assert len(found) > 300
    assert [each for each in found if unknown_words(each[1])] == []

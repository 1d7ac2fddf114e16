"""Help is English that one reads once, without holes, and its examples are commands that exist."""

import re
import shlex

import click
import pytest
from click.testing import CliRunner

from dralab.cli.kubectl_dra import main as kubectl_dra
from dralab.cli.main import main

# What no native engineer writes → what to write instead (our guide to style has the table).
ODD = {
    r"(?<!there )\b(?:is|are) no (?!longer\b|such\b|more\b)\w+": "X is not a Y",
    r"\bwhich there (?:is|are) not\b": "which does not exist",
    r"\bwhat there is so far\b": "partial results",
    r"\bits last words\b": "last output",
    r"\bBe an? \w+ of\b": "Run …",
    r"\bmeanings of\b": "generations of",
    r"^(?:To|Of|For|With|By) (?:it|them|this|that)\.": "say the whole sentence",
    r"\bwhy an? \w+ is none\b": "the problems of …",
    r"\bthat (?:is|are) there twice\b": "duplicate",
    r"\b(?:is|are) told of\b": "reported",
    r"\bwhat is wrong with\b": "what is checked",
    r"\bsuch an one\b|\bhas got\b": "has",
}
HOLE = re.compile(r"\{[A-Za-z_]+\}")
# Commands that show what the command of another program may hold.
PLACEHOLDERS = {"dralab driver check", "dralab simulate run"}
EXAMPLE = re.compile(r"`((?:dralab|kubectl dra) [^`]+)`|Example: (dralab [^\n]+)")


def commands(command, name, context=None):
    context = click.Context(command, info_name=name, parent=context)
    yield context.command_path, command
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from commands(command.get_command(context, below), below, context)


COMMANDS = [*commands(main, "dralab"), *commands(kubectl_dra, "kubectl dra")]


def texts(command):
    """Yield the texts of a command's help: of itself, and of its options."""
    yield from filter(None, (command.help, command.short_help, command.epilog))
    for each in command.params:
        if isinstance(each, click.Option) and each.help:
            yield each.help


def test_there_is_help_of_everything():
    assert len(COMMANDS) > 50
    assert not [path for path, each in COMMANDS if not each.help]
    options = [(path, option) for path, each in COMMANDS for option in each.params]
    assert len(options) > 400
    assert not [
        (path, option.name)
        for path, option in options
        if isinstance(option, click.Option) and not option.help and not option.hidden
    ]


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_help_is_english_without_holes(path, command):
    for text in texts(command):
        plain = " ".join(text.split())
        for pattern, instead in ODD.items():
            found = re.search(pattern, plain)
            assert not found, f"{path}: {found[0]!r}: {instead}"
        holes = HOLE.findall(plain) if path not in PLACEHOLDERS else []
        assert not holes, f"{path}: {holes} stands literally in {plain!r}"


EXAMPLES = [
    (path, next(filter(None, found)))
    for path, command in COMMANDS
    for text in texts(command)
    for found in EXAMPLE.findall(text)
]


def test_most_commands_have_an_example():
    assert len({path for path, _ in EXAMPLES}) > 35


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[each for _, each in EXAMPLES])
def test_an_example_is_a_command_that_exists(path, example, monkeypatch):
    words = shlex.split(re.split(r" \| | && ", example)[0])
    if words[0] == "kubectl":
        command, words = kubectl_dra, words[2:]
    else:
        command, words = main, words[1:]
    context = click.Context(command, info_name="dralab", **command.context_settings)
    monkeypatch.setenv("KUBECONFIG", "/kubeconfig")
    while isinstance(command, click.Group) and words:
        _, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=command.name, parent=context)
    # NoSuchOption, or a missing value: the example is wrong.
    command.make_parser(context).parse_args(words)


@pytest.mark.parametrize("name", ["up", "apiserver", "explain", "simulate run"])
def test_everyday_help_fits_a_screen_and_the_rest_is_one_flag_away(name):
    command = dict(COMMANDS)[f"dralab {name}"]
    shown = run(*name.split(), "--help").stdout
    assert shown.count("\n") <= 40
    assert max(map(len, shown.splitlines())) <= 80
    options = {max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)}
    if "--help-all" in options:
        assert set(command.everyday) < {each.lstrip("-") for each in options}
        whole = run(*name.split(), "--help-all").stdout
        assert not [each for each in options if each not in whole]
        assert any(f"{subject}:" in whole for subject in command.subjects)
        assert not any(f"{subject}:" in shown for subject in command.subjects)


def test_every_command_is_in_one_section_of_the_help():
    listed = [name for names in main.sections.values() for name in names]
    assert sorted(listed) == sorted(main.table)


def test_old_spellings_work_with_a_line_that_tells_the_new_one():
    found = run("backup", "--help")
    assert found.stderr == ("this spelling will be removed in 0.4; use: main store backup --help\n")
    assert found.exit_code == 0
    assert "backup" not in run("--help").stdout.split()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("help", "Topics:"),
        ("help output", "Exit codes: 0 success"),
        ("help words", "--write "),
        ("help simulate run", "Usage: dralab simulate run [OPTIONS] FILE..."),
    ],
)
def test_help_explains_topics_and_commands(words, told):
    found = run(*words.split())
    assert found.exit_code == 0
    assert told in found.stdout
    assert found.stdout.count("\n") <= 40


def test_help_of_what_does_not_exist_names_the_topics():
    found = run("help", "nonsense")
    assert found.exit_code == 2
    assert "no command 'nonsense'; topics: input, output, generations, words" in found.stderr


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))

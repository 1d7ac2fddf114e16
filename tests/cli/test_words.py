"""One vocabulary of options: a name has one meaning and one kind in all commands, and one spelling."""

import re
from collections import defaultdict

import click
import pytest

from dralab.cli import _moved
from dralab.cli._words import SYNONYMS, WORDS
from dralab.cli.main import main

# `driver classic` stands in for a program of Kubernetes, whose -v is a number.
OF_OTHERS = {("-v", "driver classic")}


def commands(group, context, path=""):
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        inner = f"{path} {name}".strip()
        yield inner, found
        if isinstance(found, click.Group):
            yield from commands(found, click.Context(found, parent=context), inner)


def found_options():
    by_name = defaultdict(list)
    for path, command in commands(main, click.Context(main)):
        for each in command.params:
            if isinstance(each, click.Option) and not each.hidden:
                for name in [*each.opts, *each.secondary_opts]:
                    if not any(name == n and path.startswith(p) for n, p in OF_OTHERS):
                        by_name[name].append((path, each))
    return by_name


COMMANDS = dict(commands(main, click.Context(main)))
OPTIONS = found_options()


def kind(option):
    """A flag, a number, or a text: a path, a choice and a duration are texts that say more."""
    if option.is_flag:
        return "flag"
    numbers = (click.types.IntParamType, click.types.FloatParamType)
    return "number" if isinstance(option.type, numbers) else "text"


def test_there_are_few_commands_and_options():
    assert len(main.list_commands(click.Context(main))) <= 32
    leaves = [path for path, each in COMMANDS.items() if not isinstance(each, click.Group)]
    assert 40 < len(leaves) <= 56
    assert 150 < len(OPTIONS) <= 230


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_has_one_kind_and_one_meaning(name):
    places = OPTIONS[name]
    assert len({kind(option) for _, option in places}) == 1, [path for path, _ in places]
    long = max(places[0][1].opts, key=len)
    texts = {option.help for _, option in places}
    assert len(texts) == 1 or long in WORDS, f"{long} is explained in {len(texts)} ways: {texts}"


def test_the_vocabulary_has_no_words_that_nobody_uses():
    assert not set(WORDS) - set(OPTIONS)


# Not said either, though no version has said it.
NEVER = {
    "--budget": "--max-…", "--dry-run": "--apply", "--first": "--seed", "--out": "--write",
    "--output-dir": "--write", "--parallel": "--workers", "--threads": "--workers",
}  # fmt: skip


@pytest.mark.parametrize("name", [*SYNONYMS, *NEVER])
def test_there_is_one_word_for_a_thing(name):
    word = (SYNONYMS | NEVER)[name]
    assert name not in OPTIONS, f"{name} of {OPTIONS[name][0][0]}: say {word}"
    assert word in OPTIONS or word == "--max-…"


def test_results_go_where_write_says():
    """No other option takes a place for results, but for those that say what is written."""
    allowed = {
        "--write", "--kubeconfig", "--export", "--sysfs", "--audit-log-path", "--bin-dir",
    }  # fmt: skip
    found = {
        max(option.opts, key=len)
        for places in OPTIONS.values()
        for _, option in places
        if re.match(r"(also )?(where to )?write\b(?! versions)", (option.help or "").lower())
        and kind(option) == "text"
    }
    assert found - allowed - {"--picture", "--parquet"} == set()


@pytest.mark.parametrize("old", _moved.COMMANDS)
def test_an_old_command_is_one_of_today(old, capsys):
    new = _moved.rewritten([*old.split(), "-x"], "dralab")
    path = " ".join(new[:-1])
    assert path == _moved.COMMANDS[old]
    words = [word for word in path.split() if not word.startswith("-")]
    assert " ".join(words) in COMMANDS or path == "help schema dst"
    assert capsys.readouterr().err == (
        f"this spelling will be removed in 0.4; use: dralab {path} -x\n"
    )


RENAMED = [(path, old, new) for path, table in _moved.OPTIONS.items() for old, new in table.items()]


@pytest.mark.parametrize(("path", "old", "new"), RENAMED)
def test_an_old_option_is_one_of_today(path, old, new):
    command = COMMANDS[_moved.COMMANDS.get(path, path).removesuffix(" --pods")]
    known = {name for each in command.params for name in each.opts}
    assert old not in known or old in new.split()
    assert {word for word in new.split() if word.startswith("-")} <= known
    start, count = path.split(), len(_moved.COMMANDS.get(path, path).split())
    assert _moved.rewritten([*start, old, "v"], "dralab")[count:] == [*new.split(), "v"]
    joined = _moved.rewritten([*start, f"{old}=v" if old[1] == "-" else f"{old}v"], "dralab")[
        count:
    ]
    last = new.split()[-1:]
    value = [f"{last[0]}=v"] if last and last[0].startswith("--") else [*last, "v"]
    assert joined == [*new.split()[:-1], *value]


def test_options_of_another_program_are_its_own():
    words = ["simulate", "program", "mine", "--json", "x"]
    assert _moved.rewritten(words, "dralab") == words


def test_what_is_said_today_is_not_rewritten(capsys):
    for words in (["plan", "--help"], ["plan"], ["driver", "check", "--", "x", "--json", "y"], []):
        assert _moved.rewritten(words, "dralab") == words
    assert capsys.readouterr().err == ""

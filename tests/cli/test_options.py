"""Options that are declared as the defaults of a command's parameters."""

from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dralab.cli._options import FILE, arg, opt, options, options_of


@dataclass(frozen=True)
class Pace:
    rate: float = opt("Per second.", least=0, default=5)
    burst: int | None = opt("At once.")


def passed_on(*, seeds: int = opt("Trials.", least=1, default=100, flags="-s --seeds"), bare=None):
    return seeds, bare


@click.command()
@options
@options_of(passed_on)
def command(
    *,
    file: Path = arg(FILE),
    more: tuple[str, ...] = arg(),
    name: str = opt("Its name.", required=True),
    note: str = opt("A text."),
    kind: str = opt("Which.", ["a", "b"], default="a"),
    label: tuple[str, ...] = opt("May be repeated."),
    table: bool | None = opt("As a table.", flags="--table/--no-table"),
    quiet: bool = opt("Say nothing."),
    pace: Pace,
    **passed,
):
    told = (str(file), more, name + note, kind, label, table, quiet, pace.rate, pace.burst, passed)
    click.echo(" ".join(map(str, told)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("f --name n", "f () n a () None False 5.0 None {'seeds': 100}"),
        (
            "f x y --name n --kind b --label p --label q --no-table --quiet -s 3 --rate 1 --burst 2",
            "f ('x', 'y') n b ('p', 'q') False True 1.0 2 {'seeds': 3}",
        ),
        ("f --name n --note !", "f () n! a () None False"),
        ("f", "Missing option '--name'"),
        ("--name n", "Missing argument 'FILE'"),
        ("f --name n --kind c", "'c' is not one of 'a', 'b'"),
        ("f --name n -s 0", "0 is not in the range x>=1"),
        ("f --name n --rate -1", "-1.0 is not in the range x>=0"),
        ("f --name n --rate nan", "'nan' is not a finite number"),
        ("f --name n --rate inf", "'inf' is not a finite number"),
    ],
)
def test_the_type_and_the_default_of_a_parameter_make_its_option(words, told):
    found = CliRunner().invoke(command, words.split())
    assert told in found.output, found.output


def test_help_shows_what_is_required_and_the_defaults():
    told = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "--name TEXT Its name. [required]" in told
    assert "--note TEXT A text. --kind [a|b] Which. [default: a]" in told
    assert "--rate FLOAT RANGE Per second. [default: 5; x>=0]" in told
    assert told.endswith("--help Show this message and exit.")


def test_options_of_a_class_in_a_class_are_options_of_the_command():
    @dataclass(frozen=True, kw_only=True)
    class Inner:
        deep: str = opt("Deep.")

    @dataclass(frozen=True, kw_only=True)
    class Outer:
        inner: Inner
        near: str = opt("Near.", default="")

    @click.command
    @options
    def command(outer: Outer) -> None:
        click.echo(f"{outer.inner.deep} {outer.near}")

    done = CliRunner().invoke(command, ["--deep", "a", "--near", "b"])
    assert (done.exit_code, done.output) == (0, "a b\n")

"""`dralab help man`: a page for each command, which roff reads without complaint."""

import re
import shutil
import subprocess

import click
import pytest
from click.testing import CliRunner

from dralab import __version__
from dralab.cli.help_man import pages
from dralab.cli.kubectl_dra import main as kubectl_dra
from dralab.cli.main import main

MACROS = {".TH", ".SH", ".PP", ".TP", ".nf", ".fi"}


@pytest.fixture(scope="module")
def made():
    return dict(pages(main, "dralab")) | dict(pages(kubectl_dra, "kubectl-dra"))


def titles(group, title):
    yield title
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            yield from titles(group.get_command(context, name), f"{title}-{name}")


def test_every_command_has_a_page(made):
    wanted = {*titles(main, "dralab"), *titles(kubectl_dra, "kubectl-dra")}
    assert len(wanted) > 50
    assert set(made) == wanted


def test_a_page_has_options_examples_and_where_to_read_on(made):
    page = made["dralab-driver-check"]
    assert page.startswith('.TH "DRALAB-DRIVER-CHECK" "1" "" "dralab ')
    assert "\n.TP\n\\fB\\-\\-seed INTEGER\\fR\nThe seed of random choices.  [default: 0]\n" in page
    assert "\n.SH SEE ALSO\n\\fBdralab\\-driver\\fR(1)\n" in page
    assert "\\fBdralab driver check\\fR [OPTIONS]" in page
    assert ".SH EXAMPLES\n.PP\n\\(gadralab driver check" in page


def test_a_line_of_help_is_never_a_request_of_roff(made):
    for title, text in made.items():
        for line in text.splitlines():
            if line.startswith("."):
                assert line.split()[0] in MACROS, (title, line)
            assert not line.startswith("'"), (title, line)
            assert line.isascii(), (title, line)


def test_pages_are_written_to_a_directory(tmp_path):
    done = CliRunner().invoke(main, ["help", "man", str(tmp_path / "man1")])
    assert done.exit_code == 0
    assert (tmp_path / "man1/dralab-up.1").read_text().startswith(".TH")
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["help", "man", str(tmp_path / "file/man1")])
    assert done.exit_code == 2
    assert re.search(r"Error: .*/file/man1: Not a directory", done.stderr)


@pytest.mark.conformance
def test_groff_reads_every_page_without_a_warning(made):
    groff = shutil.which("groff") or pytest.skip("no groff on the PATH")
    for title, text in made.items():
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww"], input=text, capture_output=True, text=True, check=True
        )
        assert done.stderr == "", title
        assert f"dralab {__version__}" in done.stdout

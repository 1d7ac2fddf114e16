"""`dralab help man`: manual pages of all commands, made from their help."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from dralab import __version__
from dralab.cli._options import FOLDER, arg, options
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput

EXIT_CODES: Final = (
    ("0", "Success, or yes."),
    ("1", "Failure, or no."),
    ("2", "Bad input or usage."),
)
# The words that begin the examples in a help text or epilog.
EXAMPLES: Final = re.compile(r"^\s*Examples?:\s*", re.MULTILINE)
# Click's mark of a paragraph whose lines stay as they are.
VERBATIM: Final = "\b"


@click.command()
@options
def man(*, directory: Path = arg(FOLDER)) -> None:
    """Write a manual page for each command to DIRECTORY.

    With the directory `man1` of a path that `man` searches, `man dralab-up` shows it:
    `manpath` prints these paths, and ~/.local/share/man is usually among them.

    Example: `dralab help man ~/.local/share/man/man1`
    """
    from dralab.cli.kubectl_dra import main as kubectl_dra
    from dralab.cli.main import main as dralab

    try:
        directory.mkdir(parents=True, exist_ok=True)
        count = 0
        for root, name in ((dralab, "dralab"), (kubectl_dra, "kubectl-dra")):
            for title, text in pages(root, name):
                (directory / f"{title}.1").write_text(text, encoding="utf-8")
                count += 1
    except OSError as error:
        raise UnusableInput(f"{directory}: {error.strerror or error}") from error
    echo(f"wrote {count} pages to {directory}", err=True)


def pages(root: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of a command's page, and of those below it."""
    context = click.Context(root, info_name=name, **root.context_settings)
    yield from _pages(root, context, name)


def _pages(command: click.Command, context: click.Context, title: str) -> Iterator[tuple[str, str]]:
    below = []
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                below.append((name, found))
    yield title, "\n".join(_page(command, context, title, below)) + "\n"
    for name, found in below:
        inner = click.Context(found, info_name=name, parent=context)
        yield from _pages(found, inner, f"{title}-{name}")


def _page(
    command: click.Command,
    context: click.Context,
    title: str,
    below: list[tuple[str, click.Command]],
) -> Iterator[str]:
    text, examples = _parts(command)
    summary = command.get_short_help_str(limit=200).rstrip(".")
    yield f'.TH "{title.upper()}" "1" "" "dralab {__version__}" "dralab manual"'
    yield from (".SH NAME", f"{escaped(title)} \\- {escaped(summary)}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", f"\\fB{escaped(context.command_path)}\\fR {escaped(usage)}")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(text)
    if below:
        yield ".SH COMMANDS"
        for name, found in below:
            line = found.get_short_help_str(limit=200)
            yield from (".TP", f"\\fB{escaped(title)}\\-{escaped(name)}\\fR(1)", escaped(line))
    yield ".SH OPTIONS"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and (record[1] or isinstance(parameter, click.Option)):
            yield from (".TP", f"\\fB{escaped(record[0])}\\fR", escaped(record[1]) or "\\&")
    if examples:
        yield from (".SH EXAMPLES", *_paragraphs(examples))
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES:
        yield from (".TP", f"\\fB{code}\\fR", meaning)
    above = title.rpartition("-")[0] if context.parent else ""
    if above:
        yield from (".SH SEE ALSO", f"\\fB{escaped(above)}\\fR(1)")


def _parts(command: click.Command) -> tuple[str, str]:
    """Return a command's text and its examples, which are at the end of the help or epilog."""
    whole = f"{command.help or ''}\n\n{command.epilog or ''}"
    text, *examples = EXAMPLES.split(whole)
    return text, "\n\n".join(examples)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", _dedented(text)):
        lines = [
            line.strip() if VERBATIM not in paragraph else line for line in paragraph.split("\n")
        ]
        lines = [line for line in lines if line.strip(f" {VERBATIM}")]
        if not lines:
            continue
        yield ".PP"
        if VERBATIM in paragraph:
            yield from (".nf", *(escaped(line) for line in lines), ".fi")
        else:
            yield escaped(" ".join(lines))


def _dedented(text: str) -> str:
    import inspect  # click has imported it

    return inspect.cleandoc(text)


def escaped(text: str) -> str:
    r"""Return a text as roff prints it: no line of it is a request.

    >>> print(escaped(".so it's --all\\"))
    \&.so it\(aqs \-\-all\e
    """
    found = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    found = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in found)
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in found.split("\n"))

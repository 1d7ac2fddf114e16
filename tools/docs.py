"""Makes the generated pages of the documentation and the changelog anew, and checks links.

Every page must be named in docs/README.md.

python tools/docs.py            write docs/reference/{commands,explanation-codes}.md, the JSON
                                schemas beside them and CHANGELOG.md, then check
python tools/docs.py --check    only check; exit code 1 where a page is old or a link leads nowhere
"""

import json
import re
import sys
import tomllib
from pathlib import Path

import click

from dralab.allocation.explanation.codes import CODES
from dralab.cli.main import main as command
from dralab.cli.schema import SCHEMAS, schema_of

ROOT = Path(__file__).parents[1]
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
CODES_PAGE = ROOT / "docs" / "reference" / "explanation-codes.md"
SCHEMA_FILES = ROOT / "docs" / "reference" / "schemas"
CHANGES = ROOT / "CHANGELOG.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
OUTSIDE = ("http://", "https://", "mailto:")


def commands_page() -> str:
    """Return the help of every command, as one page."""
    parts = ["# Commands", "", "Generated from the commands themselves by `make docs`."]
    root = click.Context(command, info_name="dralab", **command.context_settings)
    for path, found in _commands(command, root):
        parts += ["", f"## {path}", "", "```", found, "```"]
    return "\n".join(parts) + "\n"


def _commands(group: click.Group, context: click.Context):
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if found is None:
            continue
        # A command keeps the option of the context that first asked for it: ours has -h, too.
        found._help_option = None  # noqa: SLF001
        inner = click.Context(found, info_name=name, parent=context, max_content_width=100)
        inner.terminal_width = 100
        text = "\n".join(line.rstrip() for line in found.get_help(inner).splitlines())
        yield inner.command_path, text
        if isinstance(found, click.Group):
            yield from _commands(found, inner)


def codes_page() -> str:
    """Return what every code of an explanation means, as one page."""
    parts = ["# Codes of explanations", "", "Generated from `allocation/explanation/codes.py` by"]
    parts[-1] += " `make docs`."
    parts += ['`dralab explain` names the cause of a "no" by one of these codes; `dralab explain']
    parts[-1] += " --code DRA014` prints its entry."
    parts += ["A code never changes its meaning."]
    for each in CODES.values():
        parts += ["", f"## {each.code}: {each.title}", "", each.meaning, ""]
        parts += ["```text", each.example, "```", "", each.remedy]
    return "\n".join(parts) + "\n"


def schema_files() -> dict[Path, str]:
    """Return the published JSON schemas by their files."""
    return {
        SCHEMA_FILES / f"{kind}.schema.json": json.dumps(schema_of(kind), indent=2) + "\n"
        for kind in SCHEMAS
    }


def changelog(old: str = "") -> str:
    """Return the changes that no release has yet, from their fragments, above those of releases.

    `towncrier build` puts a release below the mark, and removes its fragments.
    """
    towncrier = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    mark = towncrier["start_string"]
    parts = ["# Changes", "", "`make docs` writes what is unreleased, from `changes/`.", ""]
    parts += ["## Unreleased"]
    for kind in towncrier["type"]:
        fragments = sorted((ROOT / "changes").glob(f"*.{kind['directory']}.md"))
        parts += ["", f"### {kind['name']}", ""] if fragments else []
        for fragment in fragments:
            lines = fragment.read_text().strip().splitlines()
            parts += [f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]
    return "\n".join(parts) + f"\n\n{mark}{old.partition(mark)[2]}"


def dead_links() -> list[str]:
    """Return the links between pages that lead nowhere."""
    found: list[str] = []
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    for page in sorted(pages):
        found += [
            f"{page.relative_to(ROOT)}: {target} is not there"
            for target in LINK.findall(page.read_text())
            if not target.startswith(OUTSIDE) and not (page.parent / target).exists()
        ]
    return found


def lonely_pages() -> list[str]:
    """Return the pages of docs/ that docs/README.md does not name."""
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    return [
        f"docs/README.md does not name {page.relative_to(ROOT)}"
        for page in sorted(ROOT.glob("docs/**/*.md"))
        if page != index and page.resolve() not in named
    ]


def main() -> int:
    """Write or check; return the exit code."""
    pages = {COMMANDS: commands_page(), CODES_PAGE: codes_page(), **schema_files()}
    if "--check" in sys.argv:
        problems = [
            f"{path.relative_to(ROOT)} is old: run `make docs`"
            for path, text in pages.items()
            if not path.exists() or path.read_text() != text
        ]
    else:
        for path, text in pages.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
        CHANGES.write_text(changelog(CHANGES.read_text()))
        print(f"wrote {CHANGES.relative_to(ROOT)}")
        problems = []
    problems += [*dead_links(), *lonely_pages()]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

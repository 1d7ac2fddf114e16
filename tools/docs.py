"""Makes the generated pages of the documentation and the changelog anew, and checks links.

Every page must be named in docs/README.md.

python tools/docs.py            write the generated pages and schemas of docs/reference, and
                                CHANGELOG.md, then check
python tools/docs.py --check    only check; exit code 1 where a page is old or a link leads nowhere
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from dralab.api import releases
from dralab.api.resource import features
from dralab.api.schemas import Schemas
from dralab.cli.main import main as command
from dralab.cli.schema import SCHEMAS, schema_of
from dralab.explanation.codes import CODES

# The script's own folder is on the path, whether it is run or loaded as a module.
sys.path.insert(0, str(Path(__file__).parent))
from rules import rules_page

ROOT = Path(__file__).parents[1]
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
CODES_PAGE = ROOT / "docs" / "reference" / "explanation-codes.md"
FIELDS_PAGE = ROOT / "docs" / "reference" / "fields.md"
FLAGS_PAGE = ROOT / "docs" / "reference" / "server-flags.md"
FLAGS = Path(__file__).parent / "data" / "kube-apiserver-flags.txt"
RELEASES_PAGE = ROOT / "docs" / "reference" / "releases.md"
RULES_PAGE = ROOT / "docs" / "reference" / "rules.md"
SCHEMA_FILES = ROOT / "docs" / "reference" / "schemas"
CHANGES = ROOT / "CHANGELOG.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
OUTSIDE = ("http://", "https://", "mailto:")


# Where a reader of a generated page goes on.
NEXT = {
    COMMANDS: "[first steps](../first-steps.md), [the guides](../README.md#guides)",
    CODES_PAGE: "[why is it pending?](../guides/why-pending.md), "
    "[plan capacity](../guides/capacity.md)",
    FIELDS_PAGE: "[write a scenario](../guides/write-a-scenario.md), "
    "[campaigns](../guides/campaigns.md), "
    "[find the bug in an operator](../guides/find-the-bug.md)",
    RELEASES_PAGE: "[releases of Kubernetes](../concepts/releases.md), "
    "[where the server differs on purpose](../decisions/api-differences.md)",
    RULES_PAGE: "[releases of Kubernetes](../concepts/releases.md), "
    "[where the server differs on purpose](../decisions/api-differences.md)",
    FLAGS_PAGE: "[serve a cluster](../guides/serve-a-cluster.md), "
    "[where the server differs on purpose](../decisions/api-differences.md)",
}


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
    parts = ["# Codes of explanations", "", "Generated from `explanation/codes.py` by"]
    parts[-1] += " `make docs`."
    parts += ['`dralab explain` names the cause of a "no" by one of these codes; `dralab explain']
    parts[-1] += " --code DRA014` prints its entry."
    parts += ["A code never changes its meaning."]
    for each in CODES.values():
        parts += ["", f"## {each.code}: {each.title}", "", each.meaning, ""]
        parts += ["```text", each.example, "```", "", each.remedy]
    return "\n".join(parts) + "\n"


def fields_page() -> str:
    """Return the fields of the files that users write, from their schemas, as one page."""
    parts = ["# Fields of scenarios, campaigns and trials", ""]
    parts += [
        "Generated from the [schemas](../guides/editor.md) by `make docs`. `[]` is an item of a"
    ]
    parts += ["list, `*` a name of yours. A field in **bold** must be given."]
    for kind in ("scenario", "campaign", "dst"):
        schema: Any = schema_of(kind)
        parts += ["", f"## {schema['title']}", "", schema["description"], ""]
        for name, found in schema.get("$defs", {}).items():
            if "description" in found:
                parts += [
                    f"A *{name}*: {found['description'][0].lower()}{found['description'][1:]}",
                    "",
                ]
        parts += ["| field | is | |", "|---|---|---|"]
        rows: dict[str, tuple[bool, dict[str, None], str]] = {}
        for path, inner, required in _fields(schema, schema.get("$defs", {}), ""):
            _, kinds, text = rows.setdefault(path, (required, {}, inner.get("description", "")))
            kinds[_kind(inner)] = None
        for path, (required, kinds, text) in rows.items():
            name = f"**`{path}`**" if required else f"`{path}`"
            cells = [name, ", ".join(kinds), text.replace("|", "\\|")]
            parts += ["| " + " | ".join(cells).rstrip() + " |"]
    return "\n".join(parts) + "\n"


def _fields(
    schema: dict[str, Any], defs: dict[str, Any], path: str, *, one_way: bool = False
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield the fields below a schema: their paths, schemas, and whether they must be given.

    `one_way`: the schema is one of several, so nothing of it must be.
    """
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    required = () if one_way else schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        if inner:
            yield where, inner, name in required
        yield from _fields(inner, defs, where)
    below = schema.get("additionalProperties")
    if isinstance(below, dict):
        yield from _fields(below, defs, f"{path}.*")
    if "items" in schema:
        yield from _fields(schema["items"], defs, f"{path}[]")
    for each in schema.get("anyOf", ()):
        yield from _fields(each, defs, path, one_way=True)


def _kind(schema: dict[str, Any]) -> str:
    """Return what a field is, in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        values = [f"`{each}`" for each in schema["enum"]]
        return ", ".join(values) if len(values) <= 12 else f"one of {len(values)} names"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        item = _kind(schema["items"])
        return (
            f"list of {item}s"
            if item in {"mapping", "string", "whole number"}
            else f"list of {item}"
        )
    words = {"object": "mapping", "integer": "whole number", "boolean": "true or false"}
    if "pattern" in schema and ".py:" in schema["pattern"].replace("\\", ""):
        return "`file.py:Name`"
    kinds = [words.get(each, each) for each in ([kind] if isinstance(kind, str) else kind)]
    bounds = [f"≥ {schema['minimum']}"] if schema.get("minimum") else []
    bounds += [f"> {schema['exclusiveMinimum']}"] if "exclusiveMinimum" in schema else []
    bounds += [f"≤ {schema['maximum']}"] if "maximum" in schema else []
    return " ".join([" or ".join(kinds), *bounds])


def flags_page() -> str:
    """Return the flags of the server beside kube-apiserver's, as one page."""
    theirs = [line for line in FLAGS.read_text().split("\n") if line.startswith("--")]
    ours: dict[str, dict[str, str]] = {}
    for name in ("apiserver", "up"):
        found = command.get_command(click.Context(command), name)
        for option in found.params if found else ():
            for flag in [*option.opts, *option.secondary_opts]:
                if isinstance(option, click.Option) and flag.startswith("--") and not option.hidden:
                    ours.setdefault(flag, {})[name] = " ".join((option.help or "").split())
    parts = ["# Flags of the server, beside kube-apiserver's", ""]
    parts += ["Generated by `make docs` from `dralab apiserver`, `dralab up` and kube-apiserver"]
    parts += ["1.36.2 (`--help`). [Commands](commands.md) has all options with their arguments."]
    for title, chosen in (
        ("The same", [flag for flag in theirs if flag in ours]),
        ("dralab's own", [flag for flag in sorted(ours) if flag not in theirs]),
    ):
        parts += ["", f"## {title}", "", "| flag | of | |", "|---|---|---|"]
        for flag in chosen:
            where = ", ".join(f"`{name}`" for name in ours[flag])
            parts += [f"| `{flag}` | {where} | {next(iter(ours[flag].values()))} |"]
    parts += [
        "",
        "## Not there",
        "",
        "These flags of kube-apiserver are refused as unknown options:",
        "",
    ]
    parts += [", ".join(f"`{flag}`" for flag in theirs if flag not in ours) + "."]
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


def dead_ends() -> list[str]:
    """Return the pages of docs/ that do not end with a way to go on."""
    return [
        f"{page.relative_to(ROOT)} does not say at its end where to go next"
        for page in sorted(ROOT.glob("docs/**/*.md"))
        if not LINK.search("\n".join(page.read_text().rstrip().splitlines()[-6:]))
    ]


def releases_page() -> str:
    """Return what each release of Kubernetes has that the one before it does not, from the data."""
    parts = [
        "# What differs between releases",
        "",
        "Generated from the data by `make docs`. Fields are those of objects that can be stored.",
    ]
    known = list(releases.versions())
    for newer, older in pairwise(known):
        parts += ["", f"## {newer} after {older}"]
        for title, lines in _differences(newer, older):
            parts += ["", f"{title}:", "", *(f"- {line}" for line in lines)] if lines else []
    return "\n".join(parts) + "\n"


def _differences(newer: str, older: str) -> list[tuple[str, list[str]]]:
    new, old = (set(releases.table("kinds.json", each)["kinds"]) for each in (newer, older))
    on, off = (features.gates(each) for each in (newer, older))
    gates = [
        f"{name}: {_gate(off.get(name))} → {_gate(on.get(name))}"
        for name in sorted({*on, *off})
        if on.get(name) != off.get(name)
    ]
    return [
        ("New kinds", sorted(f"`{each}`" for each in new - old)),
        ("Gone", sorted(f"`{each}`" for each in old - new)),
        ("New fields", _new_fields(newer, older)),
        ("Fields that are gone", _new_fields(older, newer)),
        ("Feature gates", gates),
    ]


def _gate(gate: features.ReleaseGate | None) -> str:
    if gate is None:
        return "none"
    return f"{gate.stage}, {'on' if gate.default else 'off'}{', locked' if gate.locked else ''}"


def _new_fields(has: str, lacks: str) -> list[str]:
    """Return the fields of definitions that both releases have, which only one of them has."""
    there, here = Schemas.standard(has), Schemas.standard(lacks)
    found = []
    for name in sorted(set(there.names()) & set(here.names())):
        fields = set(there.raw(name).get("properties", ())) - set(
            here.raw(name).get("properties", ())
        )
        if fields:
            short = name.removeprefix("io.k8s.").removeprefix("api.")
            found.append(f"`{short}`: {', '.join(sorted(fields))}")
    return found


def main() -> int:
    """Write or check; return the exit code."""
    pages = {COMMANDS: commands_page(), CODES_PAGE: codes_page(), **schema_files()}
    pages |= {FIELDS_PAGE: fields_page(), FLAGS_PAGE: flags_page()}
    pages[RELEASES_PAGE] = releases_page()
    pages[RULES_PAGE] = rules_page()
    pages |= {path: f"{pages[path].rstrip()}\n\nNext: {then}.\n" for path, then in NEXT.items()}
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
    problems += [*dead_links(), *lonely_pages(), *dead_ends()]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main())

"""Lists the rules of objects by their addresses, and what reaches them.

python tools/rules.py               write the page docs/reference/rules.md from what was recorded
python tools/rules.py --record      run the tests of the API first, recording what reaches each rule

As a plugin of pytest (`-p tools.rules`) it records which rules the tests reach.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dralab.api
from dralab.api import metadata, structural
from dralab.api.core.strategies import strategies
from dralab.api.fields import FieldError
from dralab.api.resource import rules as resource_rules
from dralab.api.rules import Ruleset, RuleTables

ROOT = Path(__file__).parents[1]
API = Path(dralab.api.__file__).parent
REACHED = ROOT / "tools" / "data" / "rules-reached.json"
PAGE = ROOT / "docs" / "reference" / "rules.md"
TESTS = ("tests/api", "tests/apiserver/conformance", "tests/apiserver/verbs")
CONSTRUCTORS = {
    "required", "invalid_value", "each", "duplicate", "duplicates", "forbidden", "not_found",
    "not_supported", "too_long", "too_many", "FieldError",
}  # fmt: skip
# Where upstream has the rules of modules that neither say it nor have a table beside them.
UPSTREAM = {
    "resource": "pkg/apis/resource/validation",
    "core.configuration": "pkg/apis/core/validation",
    "core.pods": "pkg/apis/core/validation",
    "core.declared": "the tags of the types in k8s.io/api (declarative validation)",
    "core.schema_rules": "k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation",
    "core.webhook_clients": "pkg/apis/admissionregistration/validation",
}
METHODS = ("validate", "validate_update", "validate_status", "validate_part")


# --- What there is ------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A place in a function that makes an error."""

    module: str
    function: str
    what: str
    lines: range

    @property
    def address(self) -> str:
        """The address: functions that no table names have one, too."""
        return f"{self.module}.{self.function}/{self.what}"


@cache
def sites() -> Mapping[str, list[Site]]:
    """Return the places that make errors, by module; those that look alike have numbers."""
    found: dict[str, list[Site]] = {}
    for path in sorted(API.rglob("*.py")):
        module = ".".join(path.relative_to(API).with_suffix("").parts)
        if module in {"rules", "fields"}:
            continue
        seen: dict[str, int] = defaultdict(int)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, names in _calls(tree, ()):
            what = _what(node)
            key = f"{'.'.join(names)}/{what}"
            seen[key] += 1
            named = f"{what}-{seen[key]}" if seen[key] > 1 else what
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found.setdefault(module, []).append(Site(module, ".".join(names), named, lines))
    return found


def _calls(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.Call, tuple[str, ...]]]:
    for child in ast.iter_child_nodes(node):
        named = (child.name,) if isinstance(child, ast.FunctionDef | ast.ClassDef) else ()
        yield from _calls(child, (*names, *named))
        if isinstance(child, ast.Call) and _called(child) in CONSTRUCTORS and names:
            yield child, names


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return call.func.attr if call.func.value.id == "fields" else ""
    return ""


def _what(call: ast.Call) -> str:
    """Return the last field of the path of an error, and what is said of it."""
    text = ast.unparse(call.args[0]).removeprefix("f").strip("\"'") if call.args else ""
    reason = _called(call).replace("_", "-").replace("invalid-value", "invalid")
    if reason == "FieldError":
        return text.removeprefix("FieldValue").lower()
    last = text.rpartition(".")[2].strip("{}")
    return f"{last}/{reason}" if last.isidentifier() else reason


@dataclass
class Reached:
    """The tables and functions that a kind's rules lead to, each once, in their order."""

    tables: dict[str, Ruleset] = field(default_factory=dict)
    functions: dict[str, None] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def add(self, found: Any) -> None:
        """Add what a rule, a function or a class leads to."""
        if id(found) in self._seen:
            return
        self._seen.add(id(found))
        if isinstance(found, Ruleset):
            if found.function and found.tables:
                self.tables.setdefault(found.source, found)
            for rule in found.rules:
                self.add(rule.check)
        elif isinstance(found, types.MethodType):
            self.add(found.__func__)
        elif isinstance(found, types.FunctionType):
            self._function(found)
        elif isinstance(found, list | tuple):
            for each in found:
                self.add(each)
        elif isinstance(found, Mapping):
            for each in found.values():
                self.add(each)

    def _function(self, found: types.FunctionType) -> None:
        if not found.__module__.startswith("dralab.api"):
            return
        module = found.__module__.removeprefix("dralab.api.")
        self.functions[f"{module}.{found.__qualname__}"] = None
        for cell in found.__closure__ or ():
            self.add(cell.cell_contents)
        names, texts = _words(found.__code__)
        for name in sorted(names):
            self.add(found.__globals__.get(name))
        tables = found.__globals__.get("RULES")
        if isinstance(tables, RuleTables):
            for text in sorted(texts & set(tables)):
                self.add(tables[text])


def _words(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the names and the texts in a function and in those inside it."""
    names, texts = set(code.co_names), {each for each in code.co_consts if isinstance(each, str)}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            more, other = _words(each)
            names, texts = names | more, texts | other
    return names, texts


def kinds() -> dict[str, Reached]:
    """Return what the rules of each kind lead to."""
    found: dict[str, Reached] = {}
    for kind, strategy in sorted(strategies().items()):
        reached = found[kind] = Reached()
        for name in dir(strategy):
            value = getattr(strategy, name)
            if name in METHODS or isinstance(value, Ruleset):
                reached.add(value)
        # Methods call methods of their own by names that a function does not have.
        for owner in type(strategy).__mro__[:-2]:
            for value in vars(owner).values():
                reached.add(value)
    for title, roots in (
        ("resource.k8s.io", vars(resource_rules)),
        ("metadata of all kinds", vars(metadata)),
        ("objects of custom kinds", vars(structural)),
    ):
        reached = found[title] = Reached()
        for value in list(roots.values()):
            reached.add(value)
    return found


def tables() -> dict[str, Ruleset]:
    """Return all tables by their names."""
    found: dict[str, Ruleset] = {}
    for path in sorted(API.rglob("*.rules")):
        module = "dralab.api." + ".".join(path.relative_to(API).with_suffix("").parts)
        scope = vars(sys.modules.get(module) or __import__(module, fromlist=["_"]))
        each = next(filter(None, (_tables_of(value, module) for value in scope.values())))
        found |= {each[name].source: each[name] for name in each}
    return found


def _tables_of(value: Any, module: str) -> RuleTables | None:
    found = value if isinstance(value, RuleTables) else getattr(value, "tables", None)
    return found if isinstance(found, RuleTables) and found.module == module else None


def addresses() -> list[str]:
    """Return the addresses of all rules: those of tables, and the errors of functions."""
    return [
        address
        for table in tables().values()
        for address, rule in table.addresses()
        if address.endswith(("/required", "/present")) or not _is_named(rule.check)
    ] + [site.address for each in sites().values() for site in each]


def _is_named(check: Any) -> bool:
    """Return whether a check is another table or a function, which has its own addresses."""
    if isinstance(check, Ruleset):
        return True
    return getattr(check, "__module__", "") != "dralab.api.rules"


# --- What reaches it ----------------------------------------------------------------------


class Recorder:
    """Notes the address of each error that is made, and by which test or recorded answer."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, None]] = {}
        self._rules = {
            (id(rule), address.endswith(("/required", "/present"))): address
            for table in tables().values()
            for address, rule in table.addresses()
        }
        self._sites = {
            (f"dralab.api.{module}", line): site.address
            for module, each in sites().items()
            for site in sorted(each, key=lambda site: -len(site.lines))
            for line in site.lines
        }

    def install(self) -> None:
        """Record from now on."""
        begin = FieldError.__init__
        recorder = self

        def noted(error: FieldError, *given: Any, **named: Any) -> None:
            begin(error, *given, **named)
            recorder.note(sys._getframe(1))  # noqa: SLF001

        FieldError.__init__ = noted  # type: ignore[assignment, method-assign]

    def note(self, frame: types.FrameType | None) -> None:
        """Note where an error is made: its site, and the rule of the table that led there."""
        addresses: list[str] = []
        inner, row = True, ""
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module == "dralab.api.rules" and frame.f_code is Ruleset.__call__.__code__:
                key = (id(frame.f_locals["rule"]), inner)
                addresses += filter(None, [self._rules.get(key)])
                inner = False
            elif module.startswith("dralab.api") and module != "dralab.api.fields":
                if module != "dralab.api.rules" and inner:
                    site = self._sites.get((module, frame.f_lineno))
                    addresses += filter(None, [site])
                inner = False
            elif "test_" in module and isinstance(frame.f_locals.get("row"), dict | tuple):
                asked = frame.f_locals["row"]
                row = json.dumps(asked, default=str)[:200]
            frame = frame.f_back
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].removeprefix("tests/")
        for address in addresses:
            self.found.setdefault(address, {})[f"{test} {row}".strip()] = None


RECORDER: list[Recorder] = []


def pytest_configure() -> None:
    """Record what the tests reach."""
    RECORDER.append(Recorder())
    RECORDER[0].install()


def pytest_sessionfinish() -> None:
    """Write what was reached: how many recorded answers and other tests hold each rule."""
    found: dict[str, dict[str, Any]] = {}
    for address, by in sorted(RECORDER[0].found.items()):
        recorded = [each for each in by if "/conformance/" in each]
        others = sorted(
            {each.partition(" ")[0] for each in by} - {e.split(" ")[0] for e in recorded}
        )
        found[address] = {
            "recorded": len(recorded),
            "tests": others[:1] + ["…"] * (len(others) > 1),
        }
    lines = [f"{json.dumps(each)}: {json.dumps(held)}" for each, held in found.items()]
    REACHED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# --- The page -----------------------------------------------------------------------------


def rules_page() -> str:
    """Return what is checked of each kind, as one page."""
    reached = json.loads(REACHED.read_text())
    known = addresses()
    missing = [address for address in known if address not in reached]
    parts = [
        "# What is checked of an object",
        "",
        "Generated by `make docs` from the tables of rules (`*.rules` in `src/dralab/api`) and the",
        "functions beside them; what holds a rule was recorded by `make rules`. A rule's address",
        "is its table, that is upstream's function, then its field, then what is checked.",
        "",
        f"{len(known)} rules; {len(known) - len(missing)} are held by recorded answers of a real",
        "kube-apiserver or by tests.",
        "",
        "## Kinds",
    ]
    for kind, found in kinds().items():
        links = ", ".join(f"[{name}](#{_anchor(name)})" for name in found.tables)
        own = sorted({site.module for site in _sites_of(found)})
        more = ", ".join(f"[{name}](#{_anchor(name)})" for name in own)
        parts += ["", f"**{kind}**: {links or 'no tables'}; functions in {more or 'none'}."]
    parts += ["", "## Tables"]
    for name, table in tables().items():
        package = table.tables.group[1] if table.tables else ""
        parts += ["", f"### {name}", "", f"Source: {package}", ""]
        parts += ["| field | rule | says | held by |", "|---|---|---|---|"]
        for address, rule in table.addresses():
            _, field_, called = (
                address.removeprefix(name).partition("/")[2].rpartition("/")[0],
                "",
                "",
            )
            where, _, called = address[len(name) + 1 :].rpartition("/")
            del field_
            says = rule.why if called in {"required", "present"} else ""
            parts += [_row(f"`{where or '.'}`", called, says, _held(reached.get(address)))]
    parts += ["", "## Functions"]
    for module, each in sites().items():
        parts += ["", f"### {module}", "", *_source(module)]
        parts += ["| function | error | held by |", "|---|---|---|"]
        parts += [_row(f"`{s.function}`", s.what, _held(reached.get(s.address))) for s in each]
    parts += ["", "## Rules that nothing reaches", ""]
    parts += [f"- `{address}`" for address in missing] or ["None."]
    return "\n".join(parts) + "\n"


def _source(module: str) -> list[str]:
    """Return the line about upstream's source that a module begins with."""
    path = API.joinpath(*module.split(".")).with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = re.search(r"^Sources?: .+?(?=\n\n|\. [A-Z]|\Z)", text, re.MULTILINE | re.DOTALL)
    if found:
        return [found[0], ""]
    beside = [path.with_suffix(".rules")]
    groups = {
        each.read_text(encoding="utf-8").splitlines()[0].partition(": ")[2]
        for each in (beside if beside[0].exists() else path.parent.glob("*.rules"))
    }
    known = next((UPSTREAM[each] for each in UPSTREAM if module.startswith(each)), "")
    if not known and len(groups) == 1:
        known = groups.pop()
    return [f"Source: {known}", ""] if known else []


def _sites_of(found: Reached) -> Iterator[Site]:
    for each in sites().values():
        for site in each:
            if f"{site.module}.{site.function}" in found.functions:
                yield site


def _anchor(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter in "-_")


def _held(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "nothing"
    answers = found["recorded"]
    shown = [f"{answers} recorded answer{'s' * (answers > 1)}"] if answers else []
    return " · ".join([*shown, *(f"`{test}`" for test in found["tests"] if not answers)])


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Record if told to; write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="run the tests of the API first")
    if parser.parse_args().record:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tools.rules",
            "-p",
            "no:cacheprovider",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([*command, *TESTS], cwd=ROOT, env=environment, check=False)
        if done.returncode:
            return done.returncode
    subprocess.run([sys.executable, str(ROOT / "tools" / "docs.py")], check=True)
    return 0


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main())

"""Sixty ways to wait, and the page for each: read one aloud before you change it.

`scenes/NAME.yaml` is added to `scenes/fleet.yaml`, unless its first line says otherwise;
`scenes/NAME.txt` is what `dralab explain` prints. RECORD_PAGES=1 writes the pages anew.
"""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.capacity.page_words import PageWords
from dralab.cli.main import main
from dralab.cli.objects import manifests
from dralab.explanation.answers import ReasonWriter
from dralab.explanation.codes import CODES
from dralab.scheduling.model import ClusterModel

SCENES = Path(__file__).parent / "scenes"
NAMES = sorted(path.stem for path in SCENES.glob("*.yaml") if path.stem != "fleet")
ARGUMENTS = re.compile(r"# dralab explain (.*)")


SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/explanation.schema.json").read_text()
)
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def violations(value, schema, path="$"):
    """Yield where a value is not as a schema says: the few keywords that ours uses."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not isinstance(value, tuple(TYPES[kind] for kind in kinds)):
        yield f"{path}: not {kinds}"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{path}: {value!r}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} does not match"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        yield from (
            f"{path}: lacks {name}" for name in schema.get("required", ()) if name not in value
        )
        for name, item in value.items():
            if name in known:
                yield from violations(item, known[name], f"{path}.{name}")
            elif not schema.get("additionalProperties", True):
                yield f"{path}: unknown {name}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from violations(item, schema.get("items", {}), f"{path}[{number}]")


# Of older generations, a claim that no pod uses, and a pod that past the scheduler has its node.
NOT_OF_A_MODEL = {"evolution", "k8srm", "k8srm-class", "k8srm-total", "claim-alone", "pinned"}


def arguments_of(name):
    first = (SCENES / f"{name}.yaml").read_text().partition("\n")[0]
    given = ARGUMENTS.fullmatch(first)
    return given[1].split() if given else ["-f", "fleet.yaml", "-f", f"{name}.yaml", "train"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_OF_A_MODEL])
def test_page_event_and_what_if_tell_the_same_code_and_cause(name):
    words = arguments_of(name)
    files = [words[at + 1] for at, word in enumerate(words) if word == "-f"]
    if "--node" in words:
        pytest.skip("what-if looks at all nodes")
    (told,) = json.loads(explained(name, "-o", "json").stdout)
    model = ClusterModel([item.object for item in manifests(files).objects])
    subject = told["object"].removeprefix("pod ")
    pod = next(each for each in model.waiting if str(each.key) == subject)
    with model.tentatively():
        refusal = model.run(model.waiting)[pod.uid]
        asked = PageWords(model)(refusal)
        event = ReasonWriter(lambda: 0)(refusal, model.state)
    assert asked.code == told["code"]
    assert told["headline"][1:] in asked.text
    assert f"({told['code']})" in event


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(SCENES)


@cache
def explained(name, *more):
    """Explain a scene; several tests look at the same page."""
    return CliRunner().invoke(main, ["explain", *arguments_of(name), *more])


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_why_on_one_screen_and_in_words_for_an_event(name):
    found = explained(name)
    assert found.exit_code == 1, found.output
    page = SCENES / f"{name}.txt"
    if os.environ.get("RECORD_PAGES"):
        page.write_text(found.stdout)
    assert found.stdout == page.read_text()
    lines = found.stdout.splitlines()
    assert len(lines) <= 24
    (told,) = json.loads(explained(name, "-o", "json").stdout)
    assert told["code"] in CODES
    assert list(violations(told, SCHEMA)) == []
    assert told["code"] in lines[0]
    assert len(told["reason"].encode()) <= 1024
    assert told["headline"][1:] in told["reason"]
    assert "…" not in told["reason"]

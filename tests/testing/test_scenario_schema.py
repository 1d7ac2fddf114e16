"""The JSON schema of trials' scenario files says what their reader does, as far as a schema can."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from dralab.scenarios.fields import Fields, FieldSource
from dralab.testing import scenario
from dralab.testing.scenario import schema
from jsonschemas import compare, problems, properties_by_path

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {
    "mine.py": "class Mine:\n    pass\n\n\ndef check(objects, history):\n    return ''\n",
    "some.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: some}\n",
}
# Together they have every field.
SCENARIOS = """
name: whole
programs:
- {python: 'mine.py:Mine', name: mine, replicas: 2, lists: cached}
- {controller: job-controller}
- {scheduler: true}
- {nodes: 2, drivers: [gpu]}
manifests: [some.yaml]
script:
- {apply: some.yaml, after: 1s}
- {apply: [some.yaml]}
- {patch: {apiVersion: v1, kind: ConfigMap, namespace: default, name: some}, with: {data: {a: b}}}
- {scale: {apiVersion: apps/v1, kind: Deployment, selector: a=b, most: 1}, replicas: 3}
- {delete: {apiVersion: v1, kind: ConfigMap, name: some}}
- {wait: 5m}
cluster: {controllers: [garbage-collector-controller], scheduler: false, nodes: 1, drivers: [gpu]}
faults: {allow: [kill, pause], forbid: [kill], most: 3}
invariants:
- {name: i, kind: ConfigMap, apiVersion: v1, expression: 'object.data == oldObject.data', when: end}
- {name: h, python: 'mine.py:check'}
ignore: [configmaps]
limits: {quiet: 10s, settle: 10m, steps: 1000, wall: 20s, memory: 1Gi}
---
programs: [{command: [sleep, '1']}]
cluster: {controllers: true}
"""
# Files and names that must exist, what two fields say together, and whether this machine can
# give a program a virtual clock.
BEYOND = (
    r"^there is no (file|class)|parts of dralab have their own names|have the same name|must be the only"
    r"|must be 1: a command|^compilation failed|^must evaluate to bool|needs the virtual clock|is outside the folder"
)


@pytest.fixture
def read(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "scenario.yaml").touch()
    given = {}
    monkeypatch.setattr(scenario, "unavailable", lambda: None)
    monkeypatch.setattr(
        scenario, "load_fields", lambda path: Fields(FieldSource(path), "", given["value"])
    )

    def load(value):
        given["value"] = value
        scenario.load(tmp_path / "scenario.yaml")

    return load


WHOLE = list(yaml.safe_load_all(SCENARIOS))


def test_what_is_read_fits_the_schema(read):
    for value in WHOLE:
        read(value)
        assert problems(schema(), value) == []
    for name in ("scenario", "fixed"):
        text = (EXAMPLES / f"60-find-the-bug/{name}.yaml").read_text()
        assert problems(schema(), yaml.safe_load(text)) == []


def alike(where):
    """Return where a field is, without indices, and with one name for the targets of a step."""
    where = re.sub(r"\[\d+\]", "[]", where)
    return re.sub(r"^script\[\]\.(patch|scale|delete)$", "script[].target", where)


def test_the_schema_has_the_fields_that_the_reader_asks_for(read, monkeypatch):
    asked, listed = defaultdict(set), defaultdict(set)
    ended = Fields.done

    def done(self):
        asked[alike(self.where)] |= self._known
        ended(self)

    monkeypatch.setattr(Fields, "done", done)
    for value in WHOLE:
        read(value)
    for where, properties in properties_by_path(schema()):
        listed[alike(where)] |= properties
    assert dict(asked) == dict(listed)


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.conformance)])
def test_a_broken_file_is_refused_by_the_schema_or_for_a_reason_beyond_it(every, read):
    compared = compare(schema(), WHOLE, read, BEYOND, every)
    assert compared.odd == []
    assert compared.refused > 3 * compared.beyond

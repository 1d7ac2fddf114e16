"""Scenario files: what is read, and what is refused with which words."""

import os
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from authorities import request
from dralab.cli.dst import dst
from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.testing import replays
from dralab.testing.faults import PlannedFault
from dralab.testing.scenario import load, schema
from dralab.testing.trial import expected_end
from dralab.testing.world import TrialWorld

EXAMPLE = Path(__file__).parents[2] / "examples/60-find-the-bug"

OPERATOR = """
class Maker:
    def __init__(self, manager):
        self.client, self.made = manager.client, False
        self.maps = manager.cache(CONFIG_MAPS)
        self.queue = manager.queue("maker", self.reconcile)
        self.maps.subscribe(lambda old, new: new and self.queue.add(key_of(new)))

    def reconcile(self, key):
        if key.name == "wish" and not self.made:
            body = {"metadata": {"generateName": "made-"}}
            self.client.create(CONFIG_MAPS, body, "default")
            self.made = True


def nothing(objects, history):
    return ""


from dralab.objects.metadata import key_of
from dralab.runtime.resources import CONFIG_MAPS
"""
WISH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wish, namespace: default}
"""
SCENARIO = """
programs:
  - python: maker.py:Maker
script:
  - apply: wish.yaml
cluster: {controllers: [], scheduler: false}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "maker.py").write_text(OPERATOR)
    (tmp_path / "wish.yaml").write_text(WISH)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


CHECKS = """
def every_create_is_answered(objects, history):
    assert [entry.at for entry in history] == sorted(entry.at for entry in history)
    assert len(list(history)) == len(history)
    refused, made = [], []
    for entry in history:
        if entry.request and entry.request.verb == "create":
            (refused if entry.code else made).append((entry.who, entry.request.plural, entry.code))
    return f"refused {refused}, made {made}"
"""


def test_an_invariant_in_python_reads_requests_and_refusals_from_the_history(folder):
    (folder / "checks.py").write_text(CHECKS)
    name = "every_create_is_answered"
    text = SCENARIO + f"invariants:\n  - python: checks.py:{name}\n"
    (folder / "scenario.yaml").write_text(text)
    scenario = load(folder / "scenario.yaml")
    refused = PlannedFault(
        fault="refuse", program="maker", verb="create", resource="configmaps", nth=1, code=503
    )
    world = TrialWorld(scenario, [refused])
    world.run()
    made = "[('maker', 'configmaps', 0)]"
    assert [each.text for each in world.violations] == [
        f"checks.py:{name}: refused [('maker', 'configmaps', 503)], made {made}"
    ]


def test_the_example_is_read():
    found = load(EXAMPLE / "scenario.yaml")
    assert [program.name for program in found.programs] == ["operator"]
    assert found.cached_lists == ["operator"]
    assert [step.verb for step in found.script] == ["apply", "apply", "delete"]
    assert found.script[0].after == 5 * SECOND


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("programs: []", "programs: must name at least one program"),
        ("programs: [{python: maker.py}]", "programs[0].python: 'maker.py' is not of the form"),
        ("programs: [{python: gone.py:A}]", "there is no file 'gone.py' beside it"),
        ("programs: [{python: maker.py:Gone}]", "there is no class 'Gone'"),
        ("programs: [{python: maker.py:CONFIG_MAPS}]", "is Resource, not a class or a function"),
        ('manifests: ["a\\0.yaml"]', "is not the name of a file: embedded null"),
        (f"manifests: [{'a' * 3000}]", "aaa … aaa"),
        ("programs: [{controller: cook}]", "programs[0].controller: 'cook' is not one of"),
        ("programs: [{scheduler: true, controller: job-controller}]", "must have exactly one of"),
        (
            "programs: [{scheduler: true, replicas: 9}]",
            "programs[0].replicas: must be at most 5",
        ),
        (
            "programs: [{scheduler: true}, {scheduler: true}]",
            "programs: two programs have the same name",
        ),
        ("script: [{apply: gone.yaml}]", "there is no file 'gone.yaml' beside it"),
        ("script: [{apply: ../wish.yaml}]", "is outside the folder of the file"),
        ("script: [{jump: high}]", "script[0]: must have exactly one of apply, patch"),
        ("script: [{delete: {kind: Pod, apiVersion: v1}}]", "must have either name or selector"),
        ("faults: {allow: [earthquake]}", "faults.allow: 'earthquake' is not one of kill"),
        ("faults: {mots: 3}", "faults.mots: is unknown; known: allow, forbid, most"),
        ("cluster: {controllers: [cook]}", "cluster.controllers: 'cook' is not one of"),
        ("cluster: {drivers: [cook]}", "cluster.drivers: 'cook' is not one of"),
        ("invariants: [{kind: Pod}]", "must have either expression or python"),
        ("invariants: [{kind: Pod, expression: 1 +}]", "invariants[0].expression"),
        ("limits: {quiet: soon}", "limits.quiet: 'soon' is not a duration"),
        ("limits: {steps: 0}", "limits.steps: must be a number, at least 1"),
        ("colour: red", "colour: is unknown"),
    ],
)
def test_a_scenario_that_cannot_be_used_is_told_with_its_field(folder, change, told):
    key = change.partition(":")[0]
    kept = "".join(
        f"{part}\n"
        for part in ["programs: [{python: maker.py:Maker}]", "script: [{apply: wish.yaml}]"]
        if not part.startswith(f"{key}:")
    )
    (folder / "scenario.yaml").write_text(f"{kept}{change}\n")
    with pytest.raises(InputError) as error:
        load(folder / "scenario.yaml")
    assert told in str(error.value)
    assert "scenario.yaml" in str(error.value) or "maker.py" in str(error.value)


def test_a_script_approves_a_request_for_a_certificate_and_it_is_signed(folder):
    (folder / "wish.yaml").write_text(
        f"""
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: jane}}
spec: {{signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: {request()}}}
"""
    )
    (folder / "scenario.yaml").write_text(
        """
programs: [{controller: certificatesigningrequest-signing-controller}]
script:
  - apply: wish.yaml
  - patch: {apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, name: jane}
    subresource: approval
    with: {status: {conditions: [{type: Approved, status: "True", reason: Known}]}}
cluster: {controllers: false, scheduler: false}
"""
    )
    found = load(folder / "scenario.yaml")
    assert str(found.script[1]) == "patch/approval CertificateSigningRequest jane"
    expected = expected_end(found)
    [stored] = expected.state.objects["certificates.k8s.io/certificatesigningrequests jane"]
    assert stored["status"]["certificate"]


def test_the_digest_changes_with_every_file(folder):
    before = load(folder / "scenario.yaml").digest
    (folder / "wish.yaml").write_text(WISH + "data: {a: b}\n")
    assert load(folder / "scenario.yaml").digest != before


def test_the_schema_has_the_fields_that_are_read():
    properties = schema()["properties"]
    assert set(properties["limits"]["properties"]) == {
        "quiet", "settle", "steps", "wall", "memory",
    }  # fmt: skip
    assert set(properties) >= {"programs", "script", "cluster", "faults", "invariants", "ignore"}


# --- the commands --------------------------------------------------------------------------------


def test_a_pipe_is_not_waited_for_and_no_seed_runs_for_a_report_that_cannot_be_written(folder):
    os.mkfifo(folder / "pipe")
    for command in ("run", "replay"):
        found = run(command, folder / "pipe")
        assert found.exit_code == 2
        assert "pipe: cannot be read: it is a named pipe, not a regular file" in found.output
    found = run("run", folder / "scenario.yaml", "--write", folder / "gone" / "report.xml")
    assert found.exit_code == 2
    assert "report.xml: No such file or directory" in found.output


def run(*arguments):
    return CliRunner().invoke(dst, [str(each) for each in arguments])


def test_seeds_that_fail_are_explained_and_replayed(folder):
    found = run(
        "run", folder / "scenario.yaml", "--seeds", 40, "--fail-fast",
        "--write", folder / "out", "--write", folder / "report.xml",
    )  # fmt: skip
    assert found.exit_code == 1, found.output
    assert "the shortest schedule: " in found.stdout
    assert "made-*: 2 at the end, 1 without faults" in found.stdout
    assert 'failures="1"' in (folder / "report.xml").read_text()
    file = folder / "out/failure-1.json"
    again = run("replay", file)
    assert again.exit_code == 1
    assert "made-*: 2 at the end, 1 without faults" in again.stdout
    assert orjson.loads((folder / "out/corpus.json").read_bytes())


@pytest.mark.conformance
def test_two_processes_find_what_one_finds(folder):
    arguments = ("run", folder / "scenario.yaml", "--seeds", 40, "-o", "json")
    one, two = run(*arguments, "--workers", 1), run(*arguments, "--workers", 2)
    assert orjson.loads(one.stdout)["failed"] > 0
    assert two.stdout == one.stdout
    fast = [run(*arguments, "--fail-fast", "--workers", number).stdout for number in (1, 2)]
    assert fast[0] == fast[1]


def test_a_program_without_a_bug_passes(folder):
    mended = OPERATOR.replace("not self.made", "len(self.maps) == 1")
    (folder / "maker.py").write_text(mended)
    found = run("run", folder / "scenario.yaml", "--seeds", 2, "--coverage", "-o", "text")
    assert found.exit_code == 0, found.output
    assert "2 seeds: 2 pass, 0 fail" in found.stdout
    assert "PROGRAM" in found.stdout


def test_a_scenario_that_fails_without_faults_is_shown_with_what_happened(folder):
    (folder / "maker.py").write_text(OPERATOR.replace("self.made = True", "raise KeyError('made')"))
    found = run("run", folder / "scenario.yaml")
    assert found.exit_code == 2
    first, *timeline = found.stderr.splitlines()
    assert first.startswith("Error: ")
    assert "the run without faults fails: crash: maker crashes: KeyError: 'made'" in first
    assert any("create configmaps default/made-*" in line for line in timeline)
    assert "X crash: maker crashes: KeyError" in timeline[-1]


def test_a_manifest_that_the_server_refuses_is_one_line(folder):
    (folder / "scenario.yaml").write_text(SCENARIO + "manifests: [wish.yaml]\n")
    (folder / "wish.yaml").write_text(WISH.replace("ConfigMap", "ConfigMop"))
    found = run("run", folder / "scenario.yaml")
    assert found.exit_code == 2
    assert 'manifests: no matches for kind "ConfigMop" in version "v1"' in found.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a replay file"),
        (b'{"kind": "dralab-dst-replay", "format": 9}', "is format 9 of another version"),
        (
            b'{"kind": "dralab-dst-replay", "format": 1, "scenario": "s", "digest": "", "seed": 1,'
            b' "faults": [{"fault": "x"}]}',
            "faults[0]: fault 'x' is unknown",
        ),
    ],
)
def test_a_file_that_cannot_be_replayed_is_told(tmp_path, content, told):
    path = tmp_path / "replay.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        replays.read(path)
    assert told in str(error.value)


def test_a_replay_of_a_changed_scenario_says_so(folder):
    run("run", folder / "scenario.yaml", "--seeds", 40, "--fail-fast", "--write", folder / "out")
    mended = OPERATOR.replace("not self.made", "len(self.maps) == 1")
    (folder / "maker.py").write_text(mended)
    found = run("replay", folder / "out/failure-1.json")
    assert found.exit_code == 0
    assert "have changed since the failure" in found.stderr
    assert "does not fail: " in found.stdout


def test_the_faults_are_printed():
    assert "hold-watch" in run("faults").stdout

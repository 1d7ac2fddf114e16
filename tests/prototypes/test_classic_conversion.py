"""Classic DRA in today's words."""

import pytest
import yaml
from click.testing import CliRunner

from dralab.api.resource.files import ResourceCheck
from dralab.cli.main import main
from dralab.prototypes.conversion import from_classic
from dralab.prototypes.conversion.to_v1 import ToV1

FILES = """
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: fake.3-shake.com}
driverName: fake.resource.3-shake.com
---
apiVersion: fake.resource.3-shake.com/v1alpha1
kind: FakeClaimParameters
metadata: {namespace: test5, name: multiple-fakes}
spec: {count: 4, split: 2, selector: {model: MODEL_100}}
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {namespace: test5, name: multiple-fakes}
spec:
  spec:
    resourceClassName: fake.3-shake.com
    parametersRef: {apiGroup: fake.resource.3-shake.com, kind: FakeClaimParameters, name: multiple-fakes}
---
apiVersion: v1
kind: Pod
metadata: {namespace: test5, name: pod0}
spec:
  resourceClaims: [{name: fakes, source: {resourceClaimTemplateName: multiple-fakes}}]
  containers: [{name: ctr0, image: busybox, resources: {claims: [{name: fakes}]}}]
---
apiVersion: nas.fake.resource.3-shake.com/v1alpha1
kind: NodeAllocationState
metadata: {namespace: fake-system, name: worker}
spec: {allocatableDevice: [{fake: {uuid: FAKE-1, name: LATEST-FAKE-MODEL}}]}
status: Ready
"""


def converted(text):
    scene = from_classic.read(list(yaml.safe_load_all(text)))
    return ToV1(scene).objects(), scene.notes


def test_a_split_claim_asks_for_devices_and_hands_the_split_to_the_driver():
    objects, notes = converted(FILES)
    check = ResourceCheck("2026-01-01T00:00:00Z")
    checked = [found for item in objects if (found := check(item)) is not None]
    assert len(checked) == 3
    assert not [error for found in checked for error in found.errors]
    by_kind = {item["kind"]: item for item in objects}
    devices = by_kind["ResourceClaimTemplate"]["spec"]["spec"]["devices"]
    [request] = devices["requests"]
    assert request["exactly"]["count"] == 4
    assert "MODEL_100" in request["exactly"]["selectors"][0]["cel"]["expression"]
    assert devices["config"][0]["opaque"]["driver"] == "fake.resource.3-shake.com"
    assert devices["config"][0]["opaque"]["parameters"]["spec"] == {"split": 2}
    assert by_kind["Pod"]["spec"]["resourceClaims"] == [
        {"name": "fakes", "resourceClaimTemplateName": "multiple-fakes"}
    ]
    assert by_kind["ResourceSlice"]["spec"]["devices"][0]["name"] == "fake-1"
    assert not [note for note in notes if note.level == "lost"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("driverName:", "suitableNodes: {nodeSelectorTerms: []}\ndriverName:"), None),
        (("kind: FakeClaimParameters, name: m", "kind: Other, name: m"), "parametersRef"),
        (
            ("resourceClassName", "allocationMode: Immediate\n    resourceClassName"),
            "allocationMode",
        ),
        (
            ("driverName:", "suitableNodes: {nodeSelectorTerms: [{}]}\ndriverName:"),
            "suitableNodes",
        ),
    ],
)
def test_what_does_not_carry_over_is_named(change, named):
    _, notes = converted(FILES.replace(*change, 1))
    lost = [str(note) for note in notes if note.level == "lost"]
    assert len(lost) == 1 or named is None
    assert named is None or named in lost[0]


def test_commands_that_need_devices_point_to_the_translation(tmp_path):
    file = tmp_path / "classic.yaml"
    file.write_text(FILES)
    refused = CliRunner().invoke(main, ["allocate", "-f", str(file)])
    assert refused.exit_code == 2
    assert "dralab convert --to v1" in refused.output
    done = CliRunner().invoke(main, ["convert", "--to", "v1", str(file)])
    assert done.exit_code == 0, done.output


def test_a_deployment_s_entries_lose_their_source():
    text = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      resourceClaims: [{name: f, source: {resourceClaimTemplateName: t}}]
"""
    [item], _ = converted(text)
    entries = item["spec"]["template"]["spec"]["resourceClaims"]
    assert entries == [{"name": "f", "resourceClaimTemplateName": "t"}]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (
            "{kind: ResourceClaimParameters, metadata: {name: p}, "
            "generatedFrom: {kind: K, name: n}}",
            [],
        ),
        ("{kind: ResourceClaimParameters, metadata: {name: p}}", ["ResourceClaimParameters p"]),
        ("{kind: ResourceSlice, metadata: {name: s}, nodeName: n}", ["ResourceSlice s"]),
    ],
)
def test_what_structured_parameters_had_beside_claims_is_left_out_and_told(text, lost):
    item = yaml.safe_load(text) | {"apiVersion": "resource.k8s.io/v1alpha2"}
    objects, notes = converted(yaml.safe_dump(item))
    assert objects == []
    assert [note.object for note in notes] == lost

"""`dralab convert` between the versions of resource.k8s.io, and for a release."""

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: r
      exactly: {deviceClassName: gpu, capacity: {requests: {memory: 1Gi}}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i}]}
"""


@pytest.fixture
def converted(tmp_path):
    def run(*words, text=CLAIM):
        file = tmp_path / "m.yaml"
        file.write_text(text)
        result = CliRunner().invoke(main, ["convert", "-f", str(file), *words])
        return result.exit_code, list(yaml.safe_load_all(result.stdout)), result.stderr

    return run


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        ("v1beta1", {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "1Gi"}}}),
        (
            "v1beta2",
            {"exactly": {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "1Gi"}}}},
        ),
    ],
)
def test_objects_are_written_in_another_version_and_back(converted, version, request_):
    code, (claim,), _ = converted("--to", version)
    assert code == 0
    assert claim["apiVersion"] == f"resource.k8s.io/{version}"
    assert claim["spec"]["devices"]["requests"] == [{"name": "r", **request_}]
    code, (again,), _ = converted("--to", "v1", text=yaml.safe_dump(claim))
    assert (code, again) == (0, yaml.safe_load(CLAIM))


def test_a_release_has_its_versions_and_its_fields(converted):
    code, (claim, pod), said = converted("--kubernetes-version", "1.33", text=CLAIM + POD)
    assert (code, pod["kind"]) == (1, "Pod")
    assert claim["apiVersion"] == "resource.k8s.io/v1beta2"
    assert claim["spec"]["devices"]["requests"] == [
        {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    ]
    assert said == (
        "lost: ResourceClaim c: spec.devices.requests[0].exactly.capacity: 1.33 has no such field\n"
    )
    code, (claim,), said = converted("--kubernetes-version", "1.34")
    assert (code, claim, said) == (0, yaml.safe_load(CLAIM), "")


def test_a_version_that_a_release_does_not_have_is_lost(converted):
    code, found, said = converted("--kubernetes-version", "1.33", "--to", "v1")
    assert (code, found) == (1, [])
    assert said == "lost: ResourceClaim c: Kubernetes 1.33 has no v1 ResourceClaim\n"


@pytest.mark.parametrize(
    "words", [[], ["--to", "v1"], ["--to", "k8srm", "--kubernetes-version", "1.33"]]
)
def test_what_says_too_little_or_too_much_is_refused(converted, words):
    assert converted(*words)[0] == 2

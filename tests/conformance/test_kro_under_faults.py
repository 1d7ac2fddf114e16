"""kro, unmodified: killed after each of its writes, an instance and its deletion complete.

Kamera reports that a crash leaves a Service uncreated (KRO-2, kubernetes-sigs/kro#1170) or objects
of a deleted instance behind (KRO-6, #1171). Its server replaced objects where a real one merges
what is applied; with a server that merges, neither happens. It passes with the commit that Kamera
tested, c9320ee9, too.
"""

import json

import pytest
import yaml

import gomodules
from dralab.kernel.clock import SECOND
from dralab.testing.faults import READS, PlannedFault
from dralab.testing.scenario import load
from dralab.testing.trial import expected_end, run_trial
from dralab.virtualtime import unavailable

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
]
NAME = "${schema.metadata.name}"
APP = {"matchLabels": {"app": NAME}}
POD = {
    "metadata": {"labels": APP["matchLabels"]},
    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
}
BACKEND = {"service": {"name": "${service.metadata.name}", "port": {"number": 80}}}
PATH = {"path": "/", "pathType": "Prefix", "backend": BACKEND}
SPECS = {
    "deployment": (
        "apps/v1", "Deployment",
        {"replicas": "${schema.spec.replicas}", "selector": APP, "template": POD},
    ),
    "service": (
        "v1", "Service",
        {"selector": "${deployment.spec.selector.matchLabels}", "ports": [{"port": 80}]},
    ),
    "ingress": (
        "networking.k8s.io/v1", "Ingress",
        {"rules": [{"host": "shop.example.com", "http": {"paths": [PATH]}}]},
    ),
}  # fmt: skip
GRAPH = {
    "apiVersion": "kro.run/v1alpha1",
    "kind": "ResourceGraphDefinition",
    "metadata": {"name": "application"},
    "spec": {
        "schema": {
            "apiVersion": "v1alpha1", "kind": "Application",
            "spec": {"replicas": "integer | default=2"},
            "status": {"available": "${deployment.status.availableReplicas}"},
        },
        "resources": [
            {
                "id": name,
                "template": {
                    "apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "spec": spec,
                },
            }
            for name, (version, kind, spec) in SPECS.items()
        ],
    },
}  # fmt: skip
INSTANCE = {
    "apiVersion": "kro.run/v1alpha1", "kind": "Application",
    "metadata": {"name": "shop", "namespace": "default"}, "spec": {"replicas": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def kro(tmp_path_factory):
    return gomodules.operator("kro", tmp_path_factory)


@pytest.mark.parametrize("deleted", [False, True], ids=["KRO-2", "KRO-6"])
def test_an_instance_is_complete_after_a_crash(kro, tmp_path, deleted):
    sources, program = kro
    kinds = sorted((sources / "helm/crds").glob("*.yaml"))
    (tmp_path / "kinds.yaml").write_text("\n---\n".join(each.read_text() for each in kinds))
    (tmp_path / "graph.yaml").write_text(yaml.safe_dump(GRAPH))
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(INSTANCE))
    gone = {"apiVersion": "kro.run/v1alpha1", "kind": "Application", "name": "shop"}
    script = [{"apply": "graph.yaml"}, {"apply": "shop.yaml", "after": "10s"}]
    script += [{"delete": gone, "after": "30s"}] if deleted else []
    options = ["--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0"]
    document = {
        "programs": [{"command": [str(program), *options], "name": "kro"}],
        "manifests": ["kinds.yaml"],
        "script": [*script, {"wait": "30s"}],
        "cluster": {"nodes": 2},
        # The order of a list in it is chance.
        "ignore": ["kro.run/resourcegraphdefinitions:status.resources"],
    }
    (tmp_path / "scenario.yaml").write_text(json.dumps(document))
    found = load(tmp_path / "scenario.yaml")
    expected = expected_end(found)
    writes = [
        PlannedFault(
            fault="kill", program="kro", verb=verb, resource=resource, nth=nth, moment="after",
            duration=SECOND,
        )
        for (_, verb, resource), count in expected.traffic.requests.items()
        if verb not in READS and not resource.startswith(("leases", "events"))
        for nth in range(1, count + 1)
    ]  # fmt: skip
    assert any("services" in each.resource for each in writes)
    for each in writes:
        assert run_trial(found, expected, [each], 0).violations == (), str(each)

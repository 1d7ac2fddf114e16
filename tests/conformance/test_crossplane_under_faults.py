"""Crossplane 2.2.0, unmodified: no false alarm under faults, and a bug that others published.

Its definitions come from the module it is built from. DRALAB_OPERATORS names a folder with
a program that was built before (`tools/build_clients.py FOLDER crossplane`).
"""

import json
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import gomodules
from authorities import Authority
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end
from dralab.testing.world import BEGINNING
from dralab.virtualtime import unavailable

DEFINITIONS = "apiextensions.crossplane.io/v2"
KIND = "CompositeResourceDefinition"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
]


def definition(kind):
    """Return the definition of a composite resource with one number."""
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "referenceable": True}
    return {
        "apiVersion": DEFINITIONS, "kind": KIND, "metadata": {"name": f"{plural}.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def certificates(folder):
    """Write what Crossplane loads at its start, though nothing asks for it here."""
    authority = Authority(now=datetime.fromisoformat(BEGINNING).astimezone(UTC))
    certificate, key = authority.issue("crossplane")
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "ca.crt").write_bytes(authority.pem)
    (folder / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "tls.key").write_bytes(plain)


@pytest.fixture(scope="module")
def crossplane(tmp_path_factory):
    """The command, and the file of the kinds that it has."""
    folder = tmp_path_factory.mktemp("crossplane")
    sources, program = gomodules.operator("crossplane", tmp_path_factory)
    certificates(folder)
    options = ["--enable-webhooks=false", "--metrics-port=0", "--health-probe-port=0"]
    options += [f"--tls-{side}-certs-dir={folder}" for side in ("client", "server")]
    options += [f"--{name}-cache-dir={folder}" for name in ("xpkg", "xfn")]
    files = sorted((sources / "cluster/crds").glob("*.yaml"))
    kinds = "".join(f"\n---\n{each.read_text()}" for each in files)
    return [str(program), "core", "start", *options], kinds


def scenario(folder, crossplane, script, **more):
    command, kinds = crossplane
    (folder / "kinds.yaml").write_text(kinds)
    document = {
        "programs": [{"command": command, "name": "crossplane"}],
        "manifests": ["kinds.yaml"],
        "script": script,
        "cluster": {"controllers": ["garbage-collector-controller"], "scheduler": False},
        **more,
    }
    (folder / "scenario.yaml").write_text(json.dumps(document))
    return load(folder / "scenario.yaml")


def test_crossplane_raises_no_false_alarm(tmp_path, crossplane, seeds):
    for kind in ("Bucket", "Queue"):
        (tmp_path / f"{kind}.yaml").write_text(json.dumps(definition(kind)))
    gone = {"apiVersion": DEFINITIONS, "kind": KIND, "name": "queues.example.org"}
    script = [{"apply": "Bucket.yaml"}, {"apply": "Queue.yaml"}, {"delete": gone}]
    found = scenario(tmp_path, crossplane, script)
    assert search(found, expected_end(found), seeds(30)).failures == {}


COMPOSITION = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "Composition",
    "metadata": {"name": "buckets"},
    "spec": {
        "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "Bucket"},
        "mode": "Pipeline",
        "pipeline": [{"step": "only", "functionRef": {"name": "nothing"}}],
    },
}
BUCKET = {
    "apiVersion": "example.org/v1", "kind": "Bucket", "spec": {"size": 1},
    "metadata": {"name": "one", "namespace": "default"},
}  # fmt: skip
CHECKS = """
def compositions_exist(objects, history):
    there = {each["metadata"]["name"] for each in objects if each.get("kind") == "Composition"}
    for each in objects:
        name = each.get("spec", {}).get("crossplane", {}).get("compositionRef", {}).get("name")
        if name and name not in there:
            return f"{each['metadata']['name']} names the Composition {name}, which is gone"
    return ""

def revisions_are_of_their_composition(objects, history):
    of = {
        each["metadata"]["name"]: each["metadata"]["labels"]["crossplane.io/composition-name"]
        for each in objects if each.get("kind") == "CompositionRevision"
    }
    for each in objects:
        chosen = each.get("spec", {}).get("crossplane", {})
        revision = of.get(chosen.get("compositionRevisionRef", {}).get("name"))
        composition = chosen.get("compositionRef", {}).get("name")
        if revision and revision != composition:
            name = each["metadata"]["name"]
            return f"{name} has a revision of {revision}, and its Composition is {composition}"
    return ""
"""


def wrong_end(folder, crossplane, written, steps, check):
    """Return how the run without faults fails: objects are applied one by one, then `steps`."""
    for name, each in written.items():
        (folder / f"{name}.yaml").write_text(json.dumps(each))
    (folder / "checks.py").write_text(CHECKS)
    script = [{"apply": f"{name}.yaml", "after": "10s"} for name in written]
    checks = [{"python": f"checks.py:{check}"}]
    with pytest.raises(ScenarioFails) as failed:
        expected_end(scenario(folder, crossplane, [*script, *steps], invariants=checks))
    return str(failed.value)


def test_a_deleted_composition_is_still_named(tmp_path, crossplane):
    """crossplane/crossplane#7222, found by Kamera (CROSS-3): it needs no fault."""
    written = {"kind": definition("Bucket"), "composition": COMPOSITION, "bucket": BUCKET}
    gone = {"apiVersion": COMPOSITION["apiVersion"], "kind": "Composition", "name": "buckets"}
    steps = [{"delete": gone, "after": "20s"}, {"wait": "60s"}]
    wrong = wrong_end(tmp_path, crossplane, written, steps, "compositions_exist")
    assert "one names the Composition buckets, which is gone" in wrong


def test_the_revision_of_another_composition_is_used(tmp_path, crossplane):
    """crossplane/crossplane#7220, found by Kamera (CROSS-1): it needs no fault."""
    other = {**COMPOSITION, "metadata": {"name": "others"}}
    chosen = {"compositionUpdatePolicy": "Manual", "compositionRef": {"name": "buckets"}}
    bucket = {**BUCKET, "spec": {"size": 1, "crossplane": chosen}}
    written = {
        "kind": definition("Bucket"), "composition": COMPOSITION, "other": other, "bucket": bucket,
    }  # fmt: skip
    target = {"apiVersion": "example.org/v1", "kind": "Bucket", "name": "one"}
    change = {"spec": {"crossplane": {"compositionRef": {"name": "others"}}}}
    steps = [{"patch": target, "with": change, "after": "20s"}, {"wait": "60s"}]
    wrong = wrong_end(tmp_path, crossplane, written, steps, "revisions_are_of_their_composition")
    assert "one has a revision of buckets, and its Composition is others" in wrong

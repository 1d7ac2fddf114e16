"""Crossplane 2.2.0, unmodified, under faults: no false alarm is raised.

Its definitions come from the module it is built from. DRALAB_CROSSPLANE names a binary that was
built before (`tools/build_clients.py FOLDER crossplane`).
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import gomodules
from authorities import Authority
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import expected_end
from dralab.testing.world import BEGINNING
from dralab.virtualtime import unavailable

MODULE = ("github.com/crossplane/crossplane/v2", "v2.2.0")
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


def test_crossplane_raises_no_false_alarm(tmp_path, seeds):
    sources = gomodules.sources(*MODULE)
    named = os.environ.get("DRALAB_CROSSPLANE")
    program = named or gomodules.program(sources, tmp_path / "source", "./cmd/crossplane")
    certificates(tmp_path)
    files = sorted((sources / "cluster/crds").glob("*.yaml"))
    (tmp_path / "kinds.yaml").write_text("".join(f"\n---\n{each.read_text()}" for each in files))
    for kind in ("Bucket", "Queue"):
        (tmp_path / f"{kind}.yaml").write_text(json.dumps(definition(kind)))
    options = ["--enable-webhooks=false", "--metrics-port=0", "--health-probe-port=0"]
    options += [f"--tls-{side}-certs-dir={tmp_path}" for side in ("client", "server")]
    caches = [f"--{name}-cache-dir={tmp_path}" for name in ("xpkg", "xfn")]
    gone = {"apiVersion": DEFINITIONS, "kind": KIND, "name": "queues.example.org"}
    document = {
        "programs": [
            {"command": [str(program), "core", "start", *options, *caches], "name": "crossplane"}
        ],
        "manifests": ["kinds.yaml"],
        "script": [{"apply": "Bucket.yaml"}, {"apply": "Queue.yaml"}, {"delete": gone}],
        "cluster": {"controllers": ["garbage-collector-controller"], "scheduler": False},
    }
    file = Path(tmp_path / "scenario.yaml")
    file.write_text(json.dumps(document))
    scenario = load(file)
    assert search(scenario, expected_end(scenario), seeds(30)).failures == {}

"""Files that a node makes in a volume, and where the values of variables come from."""

import pytest

from dralab.api.core.pod_rules import environment, projections, volumes

UNTIL_TEN = "may not specify a duration less than 10 minutes"
KEY_TYPES = '"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"'
SIGNER = "example.com/signer"


def bundle(**more):
    return {"clusterTrustBundle": {"path": "a", **more}}


def certificate(**more):
    made = {"signerName": SIGNER, "keyType": "ED25519", "keyPath": "k"}
    return {"podCertificate": {**made, **more}}


PROJECTED = [
    ([{"secret": {}}], ["v.sources[0].secret.name: Required value"]),
    (
        [{"configMap": {"name": "c", "items": [{"key": "k", "path": "..a", "mode": 512}]}}],
        [
            "v.sources[0].configMap.items[0].path: Invalid value: \"..a\": must not start with '..'",
            "v.sources[0].configMap.items[0].mode: Invalid value: 512: must be a number between",
        ],
    ),
    (
        [{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}] * 2}}],
        ['v: Invalid value: "s": conflicting duplicate paths'],
    ),
    (
        [{"downwardAPI": {"items": [{"path": "p"}]}}],
        ["v.sources[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef"],
    ),
    (
        [{"serviceAccountToken": {"expirationSeconds": 1}}],
        [
            f"v.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: {UNTIL_TEN}",
            "v.path: Required value",
        ],
    ),
    (
        [{"serviceAccountToken": {"expirationSeconds": 2**33, "path": "/p"}}],
        [
            "v.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 8589934592: may not",
            'v.path: Invalid value: "/p": must be a relative path',
        ],
    ),
    ([bundle()], ["v.sources[0].clusterTrustBundle: Required value: either name or signerName"]),
    (
        [bundle(name="a", signerName=SIGNER)],
        ['v.sources[0].clusterTrustBundle: Invalid value: {"Name":"a"'],
    ),
    (
        [bundle(name="", labelSelector={})],
        [
            "v.sources[0].clusterTrustBundle.name: Required value: must be a valid object name",
            'v.sources[0].clusterTrustBundle.name: Invalid value: "": not a valid clustertrust',
            "v.sources[0].clusterTrustBundle.labelSelector: Invalid value: {}: labelSelector must",
        ],
    ),
    (
        [bundle(signerName="")],
        [
            "v.sources[0].clusterTrustBundle.signerName: Required value: must be a valid signer",
            "v.sources[0].clusterTrustBundle.signerName: Required value",
        ],
    ),
    (
        [bundle(name="a", path="/b"), bundle(name="b", path="/b")],
        [
            'v.sources[0].clusterTrustBundle.path: Invalid value: "/b": must be a relative path',
            'v.sources[1].clusterTrustBundle.path: Invalid value: "/b": must be a relative path',
            'v: Invalid value: "/b": conflicting duplicate paths',
        ],
    ),
    (
        [certificate(keyPath="", keyType="X", maxExpirationSeconds=1, userAnnotations={"a": "b"})],
        [
            'v.sources[0].podCertificate.userAnnotations: Invalid value: "a": must be a domain-pre',
            f'v.sources[0].podCertificate.keyType: Unsupported value: "X": supported values: {KEY_TYPES}',
            "v.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 1: if provided",
            "v.sources[0].podCertificate: Required value: specify at least one of",
        ],
    ),
    (
        [certificate(certificateChainPath="k", maxExpirationSeconds=10**9)],
        [
            "v.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 1000000000: if",
            'v: Invalid value: "k": conflicting duplicate paths',
        ],
    ),
    (
        [{"secret": {"name": "s"}, "configMap": {"name": "c"}}],
        ["v.sources[0]: Forbidden: may not specify more than 1 volume type per source"],
    ),
]
VARIABLES = [
    ({"name": ""}, ["e.name: Required value"]),
    ({"name": "a=b"}, ['e.name: Invalid value: "a=b"']),
    ({"valueFrom": {}}, ['e.valueFrom: Invalid value: "": must specify one of: `fieldRef`']),
    (
        {"value": "v", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ['e.valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
    ),
    (
        {"valueFrom": {"configMapKeyRef": {"name": "A", "key": "/"}}},
        [
            'e.valueFrom.configMapKeyRef.name: Invalid value: "A"',
            'e.valueFrom.configMapKeyRef.key: Invalid value: "/"',
        ],
    ),
    (
        {"valueFrom": {"fileKeyRef": {"path": ".."}}},
        [
            "e.valueFrom.fileKeyRef.key: Required value",
            "e.valueFrom.fileKeyRef.volumeName: Required value",
            'e.valueFrom.fileKeyRef.path: Invalid value: ".."',
        ],
    ),
    ({"valueFrom": {"fieldRef": {}}}, ["e.valueFrom.fieldRef.apiVersion: Required value"]),
    (
        {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.x"}}},
        ['e.valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath'],
    ),
    (
        {"valueFrom": {"resourceFieldRef": {"resource": "x"}}},
        ['e.valueFrom.resourceFieldRef.resource: Unsupported value: "x"'],
    ),
    (
        {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}},
        ['e.valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s'],
    ),
]
SOURCES = [
    ("emptyDir", {"sizeLimit": "-1"}, ["s.sizeLimit: Forbidden: SizeLimit field must be"]),
    ("ephemeral", {}, ["s.volumeClaimTemplate: Required value"]),
    ("image", {"pullPolicy": "X"}, ['s.pullPolicy: Unsupported value: "X"']),
    (
        "configMap",
        {"defaultMode": -1},
        ["s.name: Required value", "s.defaultMode: Invalid value: -1"],
    ),
    ("secret", {"items": [{"path": "p"}]}, ["s.secretName: Required", "s.items[0].key: Required"]),
    (
        "downwardAPI",
        {"items": [{"path": "p", "fieldRef": {}, "resourceFieldRef": {}}]},
        ["s.fieldRef.apiVersion: Required value", 's: Invalid value: "resource": fieldRef and'],
    ),
    (
        "downwardAPI",
        {"items": [{"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}}]},
        ["s.resourceFieldRef.containerName: Required value"],
    ),
]


def compared(errors, begins):
    found = [str(error) for error in errors]
    assert len(found) == len(begins), found
    for error, begin in zip(found, begins, strict=True):
        assert error.startswith(begin)


@pytest.mark.parametrize(("sources", "begins"), PROJECTED)
def test_what_is_wrong_with_a_projection(sources, begins):
    compared(projections.projected({"sources": sources}, "v"), begins)


@pytest.mark.parametrize(("variable", "begins"), VARIABLES)
def test_what_is_wrong_with_a_variable(variable, begins):
    compared(environment.ENV({"name": "a", **variable}, "e"), begins)


@pytest.mark.parametrize(("kind", "source", "begins"), SOURCES)
def test_what_is_wrong_with_a_source_that_only_pods_have(kind, source, begins):
    compared(volumes.RULES["validateVolumeSource"].checks[kind](source, "s"), begins)

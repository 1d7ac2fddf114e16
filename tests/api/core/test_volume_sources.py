"""Where volumes come from: each source with what is missing or wrong in it."""

import pytest

from dralab.api.core.volume_sources import KEPT_SOURCES, SOURCES

UUID_OF_64 = "must be a UUID and may not exceed a length of 64 characters"
HOSTS = "must be a host:port pair or multiple pairs separated by commas"
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
BYTE = "must be between 0 and 255, inclusive"

BOTH = [
    ("hostPath", {"path": ""}, ["path: Required value"]),
    ("hostPath", {"path": "/a/..", "type": ""}, ['path: Invalid value: "/a/..": must not contain']),
    (
        "hostPath",
        {"path": "/a", "type": "X"},
        ['type: Unsupported value: "X": supported values: "",'],
    ),
    (
        "gcePersistentDisk",
        {"partition": 256},
        ["pdName: Required", "partition: Invalid value: 256"],
    ),
    ("awsElasticBlockStore", {"volumeID": "a", "partition": -1}, ["partition: Invalid value: -1"]),
    ("nfs", {"server": "a", "path": "b"}, ['path: Invalid value: "b": must be an absolute path']),
    ("rbd", {}, ["monitors: Required value", "image: Required value"]),
    ("cephfs", {}, ["monitors: Required value"]),
    ("glusterfs", {}, ["endpoints: Required value", "path: Required value"]),
    ("flocker", {}, ["Required value: one of datasetName and datasetUUID is required"]),
    (
        "flocker",
        {"datasetName": "a/b", "datasetUUID": "c"},
        [
            'Invalid value: "resource": datasetName and',
            'datasetName: Invalid value: "a/b": must not',
        ],
    ),
    ("quobyte", {}, [f"registry: Required value: {HOSTS}", "volume: Required value"]),
    (
        "quobyte",
        {"registry": "a", "volume": "b"},
        [f'registry: Invalid value: "a": {HOSTS}'],
    ),
    (
        "quobyte",
        {"registry": "a", "tenant": "t" * 65, "volume": "b"},
        [f"tenant: Required value: {UUID_OF_64}"],
    ),
    ("fc", {}, ["targetWWNs: Required value: must specify either"]),
    ("fc", {"targetWWNs": ["a"]}, ["lun: Required value: lun is required"]),
    ("fc", {"targetWWNs": ["a"], "lun": 256}, [f"lun: Invalid value: 256: {BYTE}"]),
    ("fc", {"targetWWNs": ["a"], "wwids": ["b"], "lun": 0}, ['targetWWNs: Invalid value: ["a"]: ']),
    ("flexVolume", {}, ["driver: Required value"]),
    (
        "flexVolume",
        {"driver": "a", "options": {"a.K8s.io/b": "c"}},
        ['options[a.K8s.io/b]: Invalid value: "a.K8s.io/b": kubernetes.io and k8s.io'],
    ),
    ("azureFile", {}, ["secretName: Required value", "shareName: Required value"]),
    ("azureDisk", {}, ["diskName: Required value", "diskURI: Required value"]),
    (
        "azureDisk",
        {"diskName": "a", "diskURI": "b", "kind": "Managed", "cachingMode": "X"},
        [
            'cachingMode: Unsupported value: "X"',
            'diskURI: Unsupported value: "b": supported values',
        ],
    ),
    (
        "azureDisk",
        {"diskName": "a", "diskURI": "https://b", "kind": "X"},
        ['kind: Unsupported value: "X": supported values: "Dedicated", "Managed", "Shared"'],
    ),
    ("vsphereVolume", {}, ["volumePath: Required value"]),
    ("photonPersistentDisk", {}, ["pdID: Required value"]),
    ("portworxVolume", {}, ["volumeID: Required value"]),
    (
        "scaleIO",
        {},
        ["gateway: Required value", "system: Required value", "volumeName: Required value"],
    ),
    ("storageos", {}, ["volumeName: Required value"]),
    (
        "storageos",
        {"volumeName": "A", "volumeNamespace": "B", "secretRef": {"namespace": "c"}},
        [
            f'volumeName: Invalid value: "A": {LABEL}',
            f'volumeNamespace: Invalid value: "B": {LABEL}',
            "secretRef.name: Required value",
        ],
    ),
    ("cinder", {}, ["volumeID: Required value"]),
    (
        "cinder",
        {"volumeID": "a", "secretRef": {"namespace": "b"}},
        ["secretRef.name: Required value"],
    ),
    (
        "iscsi",
        {"chapAuthSession": True, "lun": 300},
        [
            "targetPortal: Required value",
            "iqn: Required value",
            f"lun: Invalid value: 300: {BYTE}",
            "secretRef: Required value",
        ],
    ),
    (
        "iscsi",
        {"targetPortal": "a", "iqn": "iqn.2001-04.a:b", "initiatorName": "eui.0"},
        ['initiatorname: Invalid value: "eui.0": must be valid format'],
    ),
]
OF_PODS = [
    (
        "gitRepo",
        {"directory": "/a/.."},
        ["repository: Required", "directory: Inv", "directory: Inv"],
    ),
    ("persistentVolumeClaim", {}, ["claimName: Required value"]),
    (
        "iscsi",
        {"targetPortal": "a", "iqn": "x"},
        ['iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa'],
    ),
    ("csi", {}, ["driver: Required value"]),
    (
        "csi",
        {"driver": "d", "nodePublishSecretRef": {}},
        ["nodePublishSecretRef.name: Required value"],
    ),
    (
        "csi",
        {"driver": "d" * 64, "nodePublishSecretRef": {"name": "A"}},
        ["driver: Too", "name: In"],
    ),
]
KEPT = [
    ("local", {}, ["path: Required value"]),
    ("local", {"path": ".."}, ["path: Invalid value: \"..\": must not contain '..'"]),
    ("iscsi", {"targetPortal": "a", "iqn": "x"}, ['iqn: Invalid value: "x": must be valid format']),
    (
        "glusterfs",
        {"endpoints": "a", "path": "b", "endpointsNamespace": ""},
        ['endpointsNamespace: Invalid value: "": if the endpointnamespace is set'],
    ),
    (
        "glusterfs",
        {"endpoints": "a", "path": "b", "endpointsNamespace": "A"},
        [f'endpointsNamespace: Invalid value: "A": {LABEL}'],
    ),
    (
        "azureFile",
        {"secretName": "a", "shareName": "b", "secretNamespace": ""},
        ["secretNamespace: Required value"],
    ),
    (
        "cinder",
        {"volumeID": "a", "secretRef": {"name": "b"}},
        ["secretRef.namespace: Required value"],
    ),
    ("csi", {"driver": "d"}, ["volumeHandle: Required value"]),
    (
        "csi",
        {"driver": "d", "volumeHandle": "v", "nodeExpandSecretRef": {"name": "A"}},
        ["nodeExpandSecretRef.namespace: Required", 'nodeExpandSecretRef.name: Invalid value: "A"'],
    ),
]


def told(table, kind, source):
    return [str(error) for error in table.checks[kind](source, "s")]


@pytest.mark.parametrize(
    ("table", "kind", "source", "begins"),
    [
        *((SOURCES, *case) for case in BOTH + OF_PODS),
        *((KEPT_SOURCES, *case) for case in BOTH + KEPT if case[0] != "storageos" or not case[1]),
    ],
)
def test_what_is_wrong_with_a_source_is_told_in_the_order_of_upstream(table, kind, source, begins):
    found = told(table, kind, source)
    assert len(found) == len(begins), found
    for error, begin in zip(found, begins, strict=True):
        path = "s" if begin.startswith(("Required", "Invalid")) else "s."
        own = "s." if begin.startswith("name: In") else path
        assert error.startswith((f"{own}{begin}", f"{path}{begin}", f"{path}: {begin}")), found


@pytest.mark.parametrize("table", [SOURCES, KEPT_SOURCES])
def test_the_secret_of_a_kept_volume_has_a_namespace(table):
    source = {"volumeName": "a", "secretRef": {"name": "b"}}
    missing = ["s.secretRef.namespace: Required value"] if table is KEPT_SOURCES else []
    assert told(table, "storageos", source) == missing

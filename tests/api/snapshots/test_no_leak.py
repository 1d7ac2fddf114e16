"""What an attacker finds in an anonymous recording: every text of one's own is marked first."""

import orjson
import pytest

from dralab.api.snapshots.anonymous import anonymous, keyed
from dralab.api.snapshots.kept_fields import KINDS, kept

# The technology, which answers depend on; the guide lists it.
KEPT = {
    "leakme.io/dev", "leakme.io/res", "leakme.io/x", "requests.leakme.io/x",
    "device.attributes['x'].y=='leakme-lit'", "leakme-rack", "leakme-feature", "leakme.io/prov",
}  # fmt: skip

M = "leakme"


def meta(n, **k):
    return {
        "name": f"{M}-{n}",
        "namespace": f"{M}-ns",
        "uid": f"{M}-uid",
        "labels": {f"{M}.io/a": f"{M}v", "app": f"{M}w"},
        "annotations": {
            "kubernetes.io/config.mirror": f"{M}h",
            "resource.kubernetes.io/pod-claim-name": f"{M}-entry",
            "volume.beta.kubernetes.io/storage-class": f"{M}-sc",
            "x": f"{M}an",
        },
        "finalizers": [f"{M}.io/f"],
        "ownerReferences": [
            {
                "apiVersion": f"{M}.io/v1",
                "kind": f"{M}Job",
                "name": f"{M}",
                "uid": f"{M}-ou",
                "controller": True,
            }
        ],
        **k,
    }


pod = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": meta("pod"),
    "spec": {
        "nodeName": f"{M}-n",
        "schedulerName": f"{M}-s",
        "priorityClassName": f"{M}-pc",
        "containers": [
            {
                "name": f"{M}c",
                "image": f"{M}i",
                "env": [{"name": M, "value": M}],
                "ports": [{"containerPort": 80, "name": M, "hostIP": "10.11.12.13"}],
                "resources": {
                    "requests": {f"{M}.io/dev": "1", "cpu": "1"},
                    "claims": [{"name": f"{M}-entry", "request": f"{M}-req"}],
                },
            }
        ],
        "resourceClaims": [{"name": f"{M}-entry", "resourceClaimTemplateName": f"{M}-t"}],
        "tolerations": [{"key": f"{M}k", "value": f"{M}v", "operator": "Equal"}],
        "nodeSelector": {f"{M}l": f"{M}v"},
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {
                            "matchLabels": {M: M},
                            "matchExpressions": [{"key": M, "operator": "In", "values": [M]}],
                        },
                        "namespaceSelector": {"matchLabels": {M: M}},
                        "namespaces": [M],
                        "topologyKey": M,
                        "matchLabelKeys": [M],
                        "mismatchLabelKeys": [M + "mm"],
                    }
                ]
            },
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": M, "operator": "In", "values": [M]}],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [M]}
                            ],
                        }
                    ]
                }
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": M,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {M: M}},
                "matchLabelKeys": [M],
            }
        ],
        "schedulingGates": [{"name": f"{M}.io/g"}],
        "schedulingGroup": {"podGroupName": M},
        "volumes": [
            {"name": M, "persistentVolumeClaim": {"claimName": M}},
            {
                "name": M + "2",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "storageClassName": M,
                            "selector": {"matchLabels": {M: M}},
                            "volumeName": M,
                            "dataSource": {"name": M + "ds", "kind": "X"},
                            "dataSourceRef": {"name": M + "dsr"},
                        }
                    }
                },
            },
        ],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": f"{M}.io/c", "status": "True", "reason": f"{M}R", "message": M}],
        "nominatedNodeName": M,
        "resourceClaimStatuses": [{"name": f"{M}-entry", "resourceClaimName": M}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": M,
            "requestMappings": [
                {"containerName": M, "resourceName": f"{M}.io/x", "requestName": f"{M}-rq"}
            ],
        },
    },
}
claim = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": meta("claim"),
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": f"{M}-req",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "selectors": [
                            {"cel": {"expression": f"device.attributes['x'].y=='{M}-lit'"}}
                        ],
                        "tolerations": [{"key": M, "value": M}],
                    },
                }
            ],
            "constraints": [{"requests": [f"{M}-req"], "matchAttribute": "a/b"}],
            "config": [{"opaque": {"parameters": M}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [{"request": f"{M}-req", "driver": "d", "pool": M, "device": "gpu-0"}],
                "config": [M],
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [M]}]}
                ]
            },
        },
        "reservedFor": [{"resource": "pods", "name": M, "uid": M}],
        "devices": [
            {
                "driver": "d",
                "pool": M,
                "device": "g",
                "data": M,
                "networkData": {"hardwareAddress": M},
                "conditions": [{"type": M + "ct", "status": "True", "reason": M + "cr"}],
            }
        ],
    },
}
node = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": meta("node"),
    "spec": {
        "providerID": M,
        "podCIDR": M,
        "taints": [{"key": M, "value": M, "effect": "NoSchedule"}],
    },
    "status": {
        "allocatable": {"cpu": "1", f"{M}.io/res": "2"},
        "capacity": {f"{M}.io/res": "2"},
        "addresses": [M],
        "conditions": [{"type": M + "NodeCond", "status": "True", "reason": M + "NR"}],
        "declaredFeatures": [M + "-feature"],
        "nodeInfo": {"kubeletVersion": f"v1.34.1-{M}", "osImage": M},
    },
}
slice_ = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": meta("sl"),
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": M,
        "pool": {"name": M, "generation": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"uuid": {"string": M}, "rack": {"string": M + "-rack"}},
                "taints": [{"key": M, "value": M}],
                "bindingConditions": [M + "bc"],
            }
        ],
    },
}
pdb = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": meta("pdb"),
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {M: M}}},
    "status": {},
}
quota = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": meta("q"),
    "spec": {
        "hard": {
            f"requests.{M}.io/x": "1",
            f"{M}.storageclass.storage.k8s.io/requests.storage": "1",
        },
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [M]}]
        },
    },
}
pv = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": meta("pv"),
    "spec": {
        "csi": {"driver": M},
        "storageClassName": M,
        "claimRef": {"namespace": M, "name": M, "uid": M},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": M, "operator": "In", "values": [M]}]}
                ]
            }
        },
    },
    "status": {"phase": "Bound"},
}
pc = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": meta("pc"),
    "value": 5,
    "description": M,
}
sc = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": meta("sc"),
    "provisioner": f"{M}.io/prov",
    "parameters": {M: M},
    "allowedTopologies": [{"matchLabelExpressions": [{"key": M, "values": [M]}]}],
}
pg = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": meta("pg"),
    "spec": {
        "schedulingPolicy": {"gang": {"minCount": 1}},
        "podGroupTemplateRef": {
            "workload": {"workloadName": M + "wl", "podGroupTemplateName": M + "tn"}
        },
        "priorityClassName": M,
        "schedulingConstraints": {"topology": [{"key": M + "tk"}]},
        "resourceClaims": [{"name": M + "rc", "resourceClaimTemplateName": M}],
    },
}
rule = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": meta("dtr"),
    "spec": {
        "deviceSelector": {"driver": "d", "pool": M, "device": "x"},
        "taint": {"key": M, "value": M, "effect": "NoSchedule"},
    },
}
template = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": meta("t"),
    "spec": {"metadata": {"labels": {M: M}}, "spec": claim["spec"]},
}
device_class = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": meta("x") | {"name": "gpu"},
    "spec": {
        "selectors": [{"cel": {"expression": "device.attributes['x'].y=='leakme-lit'"}}],
        "config": [M],
    },
}
pvc = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": meta("pvc"),
    "spec": {
        "volumeName": M,
        "storageClassName": M,
        "selector": {"matchLabels": {M: M}},
        "dataSource": M,
    },
    "status": {"phase": "Bound"},
}

OBJECTS = [node, slice_, pod, claim, template, device_class, pdb, quota, pv, pvc, pc, sc, pg, rule]


def texts(value):
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    else:
        yield str(value)


def leaked(objects):
    return {text for each in objects for text in texts(each) if M in text or "10.11" in text}


def saved():
    return [kept(each) for each in OBJECTS]


def test_every_kind_that_is_kept_is_attacked():
    assert {each["kind"] for each in OBJECTS} == set(KINDS)
    assert len(leaked(saved())) > 40


@pytest.mark.parametrize("rename", [anonymous, lambda objects: map(keyed(b"k" * 32), objects)])
def test_nothing_of_ones_own_is_left_but_the_technology(rename):
    assert leaked(rename(saved())) == KEPT


def test_names_are_the_same_with_one_key_and_others_with_another():
    one, again, other = (
        [orjson.dumps(keyed(key)(each)) for each in saved()] for key in (b"a", b"a", b"b")
    )
    assert one == again
    assert not set(one) & set(other)

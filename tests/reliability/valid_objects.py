"""A small valid object of each kind that no schema alone makes valid.

`VALID` has what an object needs beside `apiVersion`, `kind` and `metadata`; `NAMES` are names that
kinds ask for.
"""

from typing import Any, Final

POD: Final[dict[str, Any]] = {
    "containers": [
        {
            "name": "c",
            "image": "nginx:1",
            "ports": [{"containerPort": 80, "name": "http"}],
            "env": [{"name": "A", "value": "b"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
    ],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
}
TEMPLATE: Final = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
SELECTOR: Final = {"matchLabels": {"a": "b"}}
JOB: Final = {"template": {"spec": {**POD, "restartPolicy": "Never"}}, "backoffLimit": 1}
DEVICES: Final = {
    "requests": [
        {
            "name": "r",
            "exactly": {
                "deviceClassName": "a",
                "selectors": [{"cel": {"expression": "device.driver == 'x.io'"}}],
            },
        }
    ],
    "constraints": [{"matchAttribute": "x.io/y", "requests": ["r"]}],
}
RULE: Final = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}
WEBHOOK: Final = {
    "name": "a.x.io",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "failurePolicy": "Ignore",
}
ROLE: Final = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
SUBJECTS: Final = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
ASKED: Final = {"namespace": "default", "verb": "get", "resource": "pods"}
VALID: Final[dict[str, dict[str, Any]]] = {
    "Pod": {"spec": POD},
    "PodTemplate": {"template": TEMPLATE},
    "ReplicationController": {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}},
    "ReplicaSet": {"spec": {"replicas": 1, "selector": SELECTOR, "template": TEMPLATE}},
    "Deployment": {"spec": {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}},
    "DaemonSet": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "StatefulSet": {"spec": {"selector": SELECTOR, "serviceName": "a", "template": TEMPLATE}},
    "ControllerRevision": {"revision": 1, "data": {"a": "b"}},
    "Job": {"spec": JOB},
    "CronJob": {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB}}},
    "Service": {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "name": "http"}]}},
    "Secret": {"stringData": {"a": "b"}, "type": "Opaque"},
    "ConfigMap": {"data": {"a": "b"}, "binaryData": {"c": "YQ=="}},
    "Event": {"involvedObject": {"namespace": "default", "name": "a"}, "reason": "X"},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}}]}},
    "ResourceQuota": {"spec": {"hard": {"pods": "100", "requests.cpu": "50"}}},
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/v"},
        }
    },
    "PersistentVolumeClaim": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "HorizontalPodAutoscaler": {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "maxReplicas": 3,
        }
    },
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": SELECTOR}},
    "NetworkPolicy": {"spec": {"podSelector": SELECTOR, "ingress": [{"ports": [{"port": 80}]}]}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}},
    "IngressClass": {"spec": {"controller": "x.io/y"}},
    "IPAddress": {
        "spec": {"parentRef": {"resource": "services", "namespace": "other", "name": "a"}}
    },
    "ServiceCIDR": {"spec": {"cidrs": ["10.1.0.0/24"]}},
    "EndpointSlice": {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 80}],
    },
    "Endpoints": {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
    "Lease": {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}},
    "PriorityClass": {"value": 10},
    "StorageClass": {"provisioner": "x.io/y"},
    "VolumeAttachment": {
        "spec": {"attacher": "x.io", "nodeName": "a", "source": {"persistentVolumeName": "a"}}
    },
    "VolumeAttributesClass": {"driverName": "x.io", "parameters": {"a": "b"}},
    "CSIDriver": {"spec": {"podInfoOnMount": True}},
    "CSINode": {"spec": {"drivers": [{"name": "x.io", "nodeID": "n"}]}},
    "CSIStorageCapacity": {"storageClassName": "a", "capacity": "1Gi"},
    "Role": ROLE,
    "ClusterRole": ROLE,
    "RoleBinding": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"},
        "subjects": SUBJECTS,
    },
    "ClusterRoleBinding": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"},
        "subjects": SUBJECTS,
    },
    "ResourceClaim": {"spec": {"devices": DEVICES}},
    "ResourceClaimTemplate": {"spec": {"spec": {"devices": DEVICES}}},
    "DeviceClass": {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'x.io'"}}]}},
    "DeviceTaintRule": {"spec": {"taint": {"key": "x.io/y", "effect": "NoSchedule"}}},
    "ResourceSlice": {
        "spec": {
            "driver": "x.io",
            "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "d",
                    "attributes": {"a": {"string": "b"}, "v": {"version": "1.0.0"}},
                    "capacity": {"memory": {"value": "1Gi"}},
                }
            ],
        }
    },
    "CustomResourceDefinition": {
        "spec": {
            "group": "x.io",
            "names": {"plural": "a", "kind": "A"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object"}},
                        }
                    },
                }
            ],
        }
    },
    "MutatingWebhookConfiguration": {"webhooks": [WEBHOOK]},
    "ValidatingWebhookConfiguration": {"webhooks": [WEBHOOK]},
    "ValidatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": "object.metadata.name != 'x'"}],
        }
    },
    "ValidatingAdmissionPolicyBinding": {
        "spec": {"policyName": "a", "validationActions": ["Warn"]}
    },
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "a"}},
    "APIService": {
        "spec": {
            "group": "y.io",
            "version": "v1",
            "groupPriorityMinimum": 10,
            "versionPriority": 10,
            "service": {"name": "a", "namespace": "default"},
            "insecureSkipTLSVerify": True,
        }
    },
    "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": "a"}}},
    "PriorityLevelConfiguration": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "SubjectAccessReview": {"spec": {"user": "jane", "resourceAttributes": ASKED}},
    "LocalSubjectAccessReview": {"spec": {"user": "jane", "resourceAttributes": ASKED}},
    "SelfSubjectAccessReview": {"spec": {"resourceAttributes": ASKED}},
    "SelfSubjectRulesReview": {"spec": {"namespace": "default"}},
    "TokenReview": {"spec": {"token": "x"}},
    "TokenRequest": {"spec": {"audiences": ["x"], "expirationSeconds": 3600}},
    "Binding": {"target": {"kind": "Node", "name": "a"}},
    "Eviction": {"deleteOptions": {"gracePeriodSeconds": 0}},
    "Scale": {"spec": {"replicas": 3}},
    "Widget": {"spec": {"size": 3, "parts": [{"name": "p", "weight": "1Gi"}]}},
}
NAMES: Final = {
    "IPAddress": "10.0.0.77",
    "CustomResourceDefinition": "a.x.io",
    "APIService": "v1.y.io",
}
WIDGETS: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.w.io"},
    "spec": {
        "group": "w.io",
        "names": {"plural": "widgets", "kind": "Widget", "categories": ["all"]},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Since", "type": "date", "jsonPath": ".status.since"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "x-kubernetes-validations": [
                                    {"rule": "!has(self.size) || self.size < 100"},
                                    {"rule": "oldSelf.size != 7 || self.size == 7"},
                                ],
                                "properties": {
                                    "size": {"type": "integer", "default": 1},
                                    "when": {"type": "string", "format": "date-time"},
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "note": {"type": "string", "nullable": True, "pattern": "^a*$"},
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "weight": {"type": "string", "format": "quantity"},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "since": {"type": "string"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}

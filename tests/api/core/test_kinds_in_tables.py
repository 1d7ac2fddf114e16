"""What is wrong with objects of many kinds, where no recorded answer of a real server tells."""

import pytest

from dralab.api.core.strategies import strategies

HPA = "autoscaling/horizontalpodautoscalers"
FLOW, LEVEL = (
    f"flowcontrol.apiserver.k8s.io/{each}"
    for each in ("flowschemas", "prioritylevelconfigurations")
)
TARGET = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
METRIC = {"metric": {"name": "m"}, "target": {"type": "Value"}}
SLICES = "discovery.k8s.io/endpointslices"


def scaled(*metrics, **more):
    spec = {"maxReplicas": 2, "scaleTargetRef": TARGET, "metrics": list(metrics), **more}
    return {"spec": spec}


def flow(**rule):
    user = {"kind": "User", "user": {"name": "u"}}
    urls = {"verbs": ["get"], "nonResourceURLs": ["/a"]}
    rule = {"subjects": [user], "nonResourceRules": [urls], **rule}
    return {"spec": {"priorityLevelConfiguration": {"name": "l"}, "rules": [rule]}}


def resources(**more):
    made = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}
    return flow(nonResourceRules=[], resourceRules=[{**made, **more}])


def limited(**more):
    response = {"type": "Queue", "queuing": {"handSize": 8, "queues": 64, "queueLengthLimit": 50}}
    return {"spec": {"type": "Limited", "limited": {"limitResponse": response, **more}}}


def slice_(kind="IPv4", **more):
    return {"addressType": kind, "endpoints": [{"addresses": ["10.0.0.1"], **more}]}


CASES = [
    (HPA, scaled({}),
     ["spec.metrics[0].type: Required value", 'spec.metrics[0].type: Unsupported value: ""',
      'spec.metrics[0].type: Unsupported value: ""']),
    (HPA, scaled({"type": "Pods", "pods": METRIC}),
     ["spec.metrics[0].pods.target.averageValue: Required value: must specify a positive"]),
    (HPA, scaled({"type": "External", "external": METRIC}),
     ["spec.metrics[0].external.target.averageValue: Required value: must set either a target"]),
    (HPA, scaled({"type": "External", "external": {
        "target": {"type": "Value", "value": "0", "averageValue": "1"}}}),
     ["spec.metrics[0].external.metric.name: Required value: must specify a metric name",
      'spec.metrics[0].external.target.value: Invalid value: "0": must be positive',
      "spec.metrics[0].external.target.value: Forbidden: may not set both a target value"]),
    (HPA, scaled({"type": "Object", "object": {**METRIC, "describedObject": {
        "kind": "K", "name": "n", "apiVersion": "a/b/c"}}}),
     ["spec.metrics[0].object.describedObject.apiVersion: Invalid value: \"a/b/c\": unexpected",
      "spec.metrics[0].object.target.averageValue: Required value: must set either a target v"]),
    (HPA, scaled({"type": "ContainerResource", "containerResource": {"target": {}}}),
     ["spec.metrics[0].containerResource.name: Required value: must specify a resource name",
      "spec.metrics[0].containerResource.container: Required value: must specify a container",
      "spec.metrics[0].containerResource.target.type: Required value",
      'spec.metrics[0].containerResource.target.type: Invalid value: "": must be either',
      "spec.metrics[0].containerResource.target.averageUtilization: Required value"]),
    (HPA, scaled({"type": "ContainerResource", "containerResource": {
        "name": "x", "container": "A",
        "target": {"type": "Utilization", "averageUtilization": 0, "averageValue": "1"}}}),
     ['spec.metrics[0].containerResource.name: Invalid value: "x": must be a standard',
      'spec.metrics[0].containerResource.name: Invalid value: "x": must be a standard',
      'spec.metrics[0].containerResource.container: Invalid value: "A"',
      "spec.metrics[0].containerResource.target.averageUtilization: Invalid value: 0: must",
      "spec.metrics[0].containerResource.target.averageValue: Forbidden: may not set both"]),
    (HPA, scaled(behavior={"scaleUp": {"stabilizationWindowSeconds": -1, "policies": []}}),
     ["spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: -1: must be greater",
      "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"]),
    (FLOW, flow(subjects=[{"kind": "X"}]), ['spec.rules[0].subjects[0].kind: Unsupported value: "X"']),
    (FLOW, flow(subjects=[{"kind": "User", "group": {"name": "g"}}]),
     ["spec.rules[0].subjects[0].user: Required value: user is required when subject kind is",
      "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not"]),
    (FLOW, flow(subjects=[{"kind": "ServiceAccount", "serviceAccount": {"name": "A"}}]),
     ['spec.rules[0].subjects[0].serviceAccount.name: Invalid value: "A"',
      "spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify"]),
    (FLOW, resources(verbs=["get", "x"]), ["spec.rules[0].resourceRules[0].verbs: Unsupported value"]),
    (FLOW, resources(verbs=["get", "*"], apiGroups=["*", "a"], namespaces=["A"]),
     ['spec.rules[0].resourceRules[0].verbs: Invalid value: ["get","*"]: if \'*\' is present',
      "spec.rules[0].resourceRules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present,",
      'spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: "A": each member of this']),
    (FLOW, flow(nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": ["", "a", "/a b", "/*a"]}]),
     [f"spec.rules[0].nonResourceRules[0].nonResourceURLs[{n}]: Invalid value: " for n in range(4)]),
    (LEVEL, {"spec": {"type": "X"}}, ['spec.type: Unsupported value: "X"']),
    (LEVEL, {"spec": {"type": "Limited", "exempt": {}}},
     ["spec.exempt: Forbidden: must be nil if the type is Limited",
      "spec.limited: Required value: must not be empty when type is Limited"]),
    (LEVEL, limited(lendablePercent=101, borrowingLimitPercent=-1, nominalConcurrencyShares=-1),
     ["spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
      "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
      "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-neg"]),
    (LEVEL, limited(limitResponse={"type": "Queue"}),
     ["spec.limited.limitResponse.queuing: Required value: must not be empty"]),
    (SLICES, slice_(addresses=["10.0.0.1"] * 101), ["endpoints[0].addresses: Too many: 101"]),
    (SLICES, slice_(hints={"forZones": [{"name": "z"}] * 9}),
     ["endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"]),
    (SLICES, {**slice_(), "ports": [{"name": "a"}] * 20_001}, ["ports: Too many: 20001"]),
    (SLICES, {"addressType": "IPv4", "endpoints": [{}] * 1001}, ["endpoints: Too many: 1001"]),
    ("storage.k8s.io/storageclasses",
     {"provisioner": "a/b", "parameters": {str(n): "" for n in range(513)}},
     ["parameters: Too long: may not be more than 512 bytes"]),
    ("storage.k8s.io/storageclasses", {"provisioner": "a/b", "parameters": {"": "x" * 2**19}},
     ['parameters: Invalid value: "": field can not be empty.',
      "parameters: Too long: may not be more than 262144 bytes"]),
    ("storage.k8s.io/csinodes",
     {"spec": {"drivers": [{"name": "d", "nodeID": "n" * 257, "topologyKeys": ["a", "a"]},
                           {"name": "d", "nodeID": "n", "allocatable": {"count": -1}}]}},
     [f'spec.drivers[0].nodeID: Invalid value: "{"n" * 257}": must be 256 characters or less',
      'spec.drivers[0]: Duplicate value: "a"',
      "spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
      'spec.drivers[1].name: Duplicate value: "d"']),
    ("networking.k8s.io/networkpolicies",
     {"spec": {"policyTypes": ["Ingress"] * 3, "ingress": [{
         "ports": [{"port": 5, "endPort": 70000}, {"port": "a", "endPort": 5}],
         "from": [{"ipBlock": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}],
     }]}},
     ["spec.ingress[0].ports[0].endPort: Invalid value: 70000: must be between 1 and 65535",
      "spec.ingress[0].ports[1].endPort: Invalid value: 5: may not be specified when `port` is n",
      "spec.ingress[0].from[0].ipBlock.cidr: Required value",
      'spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: "11.0.0.0/8": must be a strict',
      'spec.policyTypes: Invalid value: ["Ingress","Ingress","Ingress"]: may not specify more']),
    ("networking.k8s.io/ingresses",
     {"spec": {"rules": [{"host": "10.0.0.1", "http": {"paths": [
         {"pathType": "Exact", "path": "a//b", "backend": {"service": {"name": "A"}}},
         {"pathType": "X", "backend": {"resource": {"kind": "k", "name": "n"}}},
     ]}}]}},
     ['spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address',
      'spec.rules[0].http.paths[0].path: Invalid value: "a//b": must be an absolute path',
      "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must not contain '//'",
      'spec.rules[0].http.paths[0].backend.service.name: Invalid value: "A"',
      "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
      'spec.rules[0].http.paths[1].pathType: Unsupported value: "X"']),
    ("node.k8s.io/runtimeclasses",
     {"handler": "h", "scheduling": {"tolerations": [{"key": "a", "operator": "Exists"}] * 2}},
     ['scheduling.tolerations[1]: Duplicate value: {"Key":"a"']),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "begins"), CASES)
def test_what_is_wrong_is_told_in_the_order_of_upstream(kind, value, begins):
    strategy = strategies()[kind]
    value = {"metadata": {"name": "x"}, **value}
    strategy.default(value)
    found = [str(error) for error in strategy.validate(value)]
    assert len(found) == len(begins), found
    for error, begin in zip(found, begins, strict=True):
        assert error.startswith(begin)

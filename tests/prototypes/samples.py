"""A small valid scene of each generation, with every kind and every form of it."""

from textwrap import dedent

import yaml

K8SRM = """
kind: DeviceDriver
metadata: {name: toys, labels: {a: b}}
deviceTypes: [gpu]
---
kind: DevicePool
metadata: {name: pool}
spec:
  driver: toys
  nodeName: node-a
  attributes: [{name: vendor, stringValue: x}]
  sharedResources: [{name: slices, capacity: 4}]
  devices:
  - name: d0
    attributes: [{name: fw, semVerValue: 1.2.3}, {name: n, intValue: 3}, {name: m, quantityValue: 4Gi}]
    sharedResourcesConsumed: {slices: 1}
    claimResourcesProvided: [{name: memory, capacity: 40Gi, blockSize: 1Gi}]
  - name: d1
    attributes: [{name: n, intValue: 4}]
    sharedResourcesConsumed: {slices: 2}
    claimResourcesProvided: [{name: memory, capacity: 40Gi}]
MOREstatus:
  availableDevices: 2
  deviceStatuses: [{name: d0, conditions: [{type: Ready, status: "True"}], claimUIDs: [a]}]
---
kind: DevicePool
metadata: {name: counted}
spec: {driver: toys, nodeName: node-b, count: 2, resources: {slices: 2}}
---
kind: DeviceClass
metadata: {name: toy, labels: {kind: toy}}
spec:
  definition:
    driver: toys
    constraints: device.vendor == 'x'
    configs: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: settings}]
status: {drivers: [toys], conditions: [{type: Ready, status: "True"}]}
---
kind: DeviceClass
metadata: {name: group}
spec: {selector: {matchLabels: {kind: toy}, matchExpressions: [{key: kind, operator: In, values: [toy]}]}}
---
kind: DeviceClass
metadata: {name: early}
spec: {driver: toys, deviceType: gpu, maxDeviceCount: 2, attributeMatches: [device.vendor], adminAccess: false}
---
kind: DeviceClaim
metadata: {name: last, namespace: default}
spec:
  matchAttributes: [vendor]
  distinctAttributes: [n]
  devices:
  - name: gpu
    allOf: [{class: toy, maxDevices: 2, requests: {devices: 1, memory: 1Gi}, constraints: device.n > 2}]
    oneOf: [{class: group, matchAttributes: [vendor], configs: [{apiVersion: v1, kind: ConfigMap, name: settings}]}]
  - {name: nic, class: toy}
---
kind: DeviceClaim
metadata: {name: third, namespace: default}
spec:
  matchAttributes: [vendor]
  claims:
  - {deviceClass: toy, requests: {count: 1, memory: 60Gi}, limits: {count: 2}, constraints: device.n > 2}
  - oneOf: [{deviceType: gpu, requests: {memory: 60Gi}}, {deviceClass: early, matchAttributes: [vendor]}]
---
kind: DeviceClaim
metadata: {name: first, namespace: default}
spec: {deviceClass: early, driver: toys, minDeviceCount: 1, maxDeviceCount: 2, attributeMatches: [device.vendor]}
---
kind: DeviceClaim
metadata: {name: held, namespace: default, uid: a}
spec: {devices: [{name: gpu, allOf: [{class: toy}]}]}
status:
  allocations: [{devicePoolName: pool, deviceName: d0, allocations: [{name: memory, allocation: 1Gi}]}]
  deviceStatuses:
  - devicePoolName: pool
    deviceName: d0
    conditions: [{type: Ready, status: "True"}]
    deviceIP: 10.0.0.1
    deviceIPs: [{ip: 10.0.0.1}]
    deviceInfo: [{a: 1}]
  podNames: [gone]
---
kind: DeviceClaim
metadata: {name: watching, namespace: default}
spec: {devices: [{name: gpu, allOf: [{class: toy, adminAccess: true}]}]}
---
kind: DevicePrivilegedClaim
metadata: {name: privileged, namespace: default}
spec: {driver: toys, constraints: device.n > 2, configs: [{apiVersion: v1, kind: ConfigMap, name: settings}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {a: b}
---
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", pods: "10"}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: listed}
spec:
  containers: [{name: c, image: i, devices: [{name: gpu}], resources: {requests: {cpu: 100m}}}]
  deviceClaims: {devices: [{name: gpu, class: toy}]}
---
apiVersion: v1
kind: Pod
metadata: {name: templated}
spec:
  containers: [{name: c, image: i, devices: [{name: nic}]}]
  deviceClaims: {template: {claimName: last, labels: {a: b}}}
---
apiVersion: v1
kind: Pod
metadata: {name: embedded}
spec:
  containers: [{name: c, image: i, devices: [{name: a}]}]
  deviceClaims:
  - {name: a, claim: {claims: [{deviceClass: toy, requests: {count: 1}}]}}
  - {name: b, claimName: first}
  - {name: c, claimTemplateName: third}
---
apiVersion: v1
kind: Pod
metadata: {name: sharing}
spec: {containers: [{name: c, image: i}], deviceClaims: {claimName: watching}}
"""
K8SRM = K8SRM.replace(
    "MORE",
    "".join(
        f"  - {{name: d{n}, attributes: [{{name: n, intValue: {n + 3}}}], "
        "claimResourcesProvided: [{name: memory, capacity: 40Gi}]}\n"
        for n in range(2, 12)
    ),
)
EVOLUTION = """
kind: ResourcePool
metadata: {name: pool}
spec:
  driverName: toys.example.com
  nodeName: node-a
  sharedCapacity: [{name: slices, capacity: "4"}]
  devices:
  - name: d0
    attributes: [{name: model, string: a}, {name: x.io/fw, version: 1.2.3}, {name: mem, quantity: 1Gi}, {name: lit, bool: true}]
    sharedCapacityConsumed: [{name: slices, capacity: "1"}]
  - {name: d1, attributes: [{name: model, string: a}]}
---
kind: DeviceClass
metadata: {name: toy}
config: [{opaque: {driverName: toys.example.com, parameters: {a: {b: 1}}}}]
requirements: [{deviceSelector: device.driverName == 'toys.example.com'}]
---
kind: ResourceClaim
metadata: {name: shared, namespace: default}
spec:
  shareable: true
  config: [{opaque: {driverName: toys.example.com, parameters: {a: 1}}}]
  constraints: [{matchAttribute: toys.example.com/model}]
  requests:
  - {name: a, deviceClassName: toy}
  - {name: b, requirements: [{deviceSelector: "device.stringAttributes['model'] == 'a'"}]}
---
kind: ResourceClaim
metadata: {name: held, namespace: default}
spec: {requests: [{name: a, deviceClassName: toy, adminAccess: true}]}
status:
  allocation:
    nodeName: node-a
    shareable: false
    driverData:
    - driverName: toys.example.com
      data: {config: [{a: 1}], results: [{requestName: a, deviceName: d0, config: [{admin: true, opaque: {driverName: x.io}}]}]}
  reservedFor: [{resource: pods, name: gone, uid: a}]
---
kind: ResourceClaimTemplate
metadata: {name: template, namespace: default}
spec:
  metadata: {labels: {a: b}, annotations: {c: d}}
  spec: {requests: [{name: a, deviceClassName: toy, config: [{opaque: {driverName: toys.example.com}}]}]}
---
kind: Quota
metadata: {name: quota, namespace: default}
spec: {allowManagementAccess: true}
---
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers:
  - name: c
    image: i
    command: [sleep]
    resources: {requests: {cpu: 100m}, claims: [{name: shared, requestName: a}, {name: mine}]}
  resourceClaims: [{name: shared, resourceClaimName: shared}, {name: mine, resourceClaimTemplateName: template}]
"""
CLASSIC = """
kind: ResourceClass
metadata: {name: fake}
driverName: fake.resource.3-shake.com
parametersRef: {apiGroup: fake.resource.3-shake.com, kind: DeviceClassParameters, name: all}
suitableNodes: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}
structuredParameters: true
---
kind: ResourceClaim
metadata: {name: claim, namespace: default}
spec:
  resourceClassName: fake
  allocationMode: WaitForFirstConsumer
  parametersRef: {apiGroup: fake.resource.3-shake.com, kind: FakeClaimParameters, name: two}
---
kind: ResourceClaimTemplate
metadata: {name: template, namespace: default}
spec: {metadata: {labels: {a: b}}, spec: {resourceClassName: fake}}
---
kind: PodSchedulingContext
metadata: {name: p, namespace: default}
spec: {selectedNode: node-a, potentialNodes: [node-a]}
---
kind: ResourceSlice
metadata: {name: slice}
nodeName: node-a
driverName: fake.resource.3-shake.com
namedResources: {instances: [{name: a, attributes: [{name: m, string: x}, {name: i, intSlice: {ints: [1]}}]}]}
---
kind: ResourceClaimParameters
metadata: {name: parameters, namespace: default}
generatedFrom: {apiGroup: x.io, kind: X, name: x}
shareable: true
driverRequests:
- driverName: fake.resource.3-shake.com
  vendorParameters: {a: 1}
  requests: [{vendorParameters: {b: 1}, namedResources: {selector: 'attributes.string["m"] == "x"'}}]
---
kind: ResourceClassParameters
metadata: {name: parameters, namespace: default}
vendorParameters: [{driverName: fake.resource.3-shake.com, parameters: {a: 1}}]
filters: [{driverName: fake.resource.3-shake.com, namedResources: {selector: 'attributes.bool["lit"]'}}]
---
apiVersion: STATE
kind: NodeAllocationState
metadata: {name: node-a, namespace: default}
spec:
  allocatableDevice: [{fake: {uuid: a, name: b}}, {fake: {uuid: c, name: x}}, {fake: {uuid: d, name: x}}]
  allocatedClaims: {u: {fake: {devices: [{uuid: a, split: 2}]}}}
  preparedDevices: {u: {fake: {devices: [{uuid: a, parentUUID: b}]}}}
status: Ready
---
apiVersion: DRIVER
kind: FakeClaimParameters
metadata: {name: two, namespace: default}
spec: {count: 2, split: 2, selector: {model: x}}
---
apiVersion: DRIVER
kind: DeviceClassParameters
metadata: {name: all}
spec: {deviceSelector: [{type: uuid, name: "*"}, {type: fake, name: "x*"}]}
---
kind: ResourceClass
metadata: {name: named}
driverName: fake.resource.3-shake.com
structuredParameters: true
---
kind: ResourceClaim
metadata: {name: chosen, namespace: default}
spec:
  resourceClassName: named
  parametersRef: {apiGroup: resource.k8s.io, kind: ResourceClaimParameters, name: parameters}
---
kind: ResourceClass
metadata: {name: controlled}
driverName: fake.resource.3-shake.com
parametersRef: {apiGroup: fake.resource.3-shake.com, kind: DeviceClassParameters, name: all}
---
kind: ResourceClaim
metadata: {name: counted, namespace: default}
spec:
  resourceClassName: controlled
  parametersRef: {apiGroup: fake.resource.3-shake.com, kind: FakeClaimParameters, name: two}
---
apiVersion: v1
kind: Pod
metadata: {name: q, namespace: default}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: a}, {name: b}]}}]
  resourceClaims:
  - {name: a, source: {resourceClaimName: chosen}}
  - {name: b, source: {resourceClaimName: counted}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: a}]}}]
  resourceClaims: [{name: a, source: {resourceClaimName: claim}}]
"""
V1 = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", pods: "10"}, conditions: [{type: Ready, status: "True"}]}
---
kind: ResourceSlice
metadata: {name: slice}
spec:
  driver: toys.example.com
  nodeName: node-a
  pool: {name: pool, generation: 1, resourceSliceCount: 1}
  devices:
  - name: d0
    attributes: {model: {string: a}, fw: {version: 1.2.3}, n: {int: 3}, lit: {bool: true}}
    capacity: {memory: {value: 40Gi}}
  - {name: d1}
---
kind: DeviceClass
metadata: {name: toy}
spec: {selectors: [{cel: {expression: device.driver == 'toys.example.com'}}]}
---
kind: ResourceClaim
metadata: {name: claim, namespace: default}
spec:
  devices:
    requests:
    - name: a
      exactly: {deviceClassName: toy, count: 1, selectors: [{cel: {expression: 'device.attributes["toys.example.com"].n > 2'}}]}
    constraints: [{matchAttribute: toys.example.com/n, requests: [a]}]
    config: [{requests: [a], opaque: {driver: toys.example.com, parameters: {a: 1}}}]
---
kind: ResourceClaimTemplate
metadata: {name: template, namespace: default}
spec: {spec: {devices: {requests: [{name: b, firstAvailable: [{name: x, deviceClassName: toy, count: 3}, {name: y, deviceClassName: toy}]}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: a}, {name: b, request: b}]}}]
  resourceClaims: [{name: a, resourceClaimName: claim}, {name: b, resourceClaimTemplateName: template}]
"""
EARLY_NODES = """
- name: n
  pools:
  - name: pool
    driver: toys
    attributes: [{name: os, stringValue: linux}, {name: kernel, semVerValue: 5.15.0}]
    resources:
    - name: d0
      attributes: [{name: speed, quantityValue: 10G}]
      capacities:
      - {name: pods, counter: {capacity: 10}}
      - {name: cpu, quantity: {capacity: "4"}}
      - {name: memory, block: {capacity: 2Gi, size: 1Mi}, topologies: [{name: numa-0, type: numa, groupInResource: true}]}
      - {name: access, accessMode: {allowReadOnlyShared: true, readOnlyShared: 1}}
  - {name: other, driver: kubelet, devices: [{name: d1, capacities: [{name: cpu, quantity: {capacity: 1}}]}]}
"""
EARLY_POD = """
podClaim:
  name: p
  claims:
  - {name: pod, driver: toys, constraints: device.os == 'linux', capacities: [{capacity: pods, counter: {request: 1}}]}
  - name: memory
    topologies: [{type: numa, policy: require}]
    capacities: [{capacity: memory, quantity: {request: 100Mi}}, {capacity: access, accessMode: {request: ReadOnlyShared}}]
containerClaims:
- name: c
  claims:
  - metadata: {name: cpu}
    spec: {driver: toys, requests: [{capacity: cpu, quantity: {request: 100m}}]}
"""


def objects(text, api_version):
    """The objects of a scene; those without an apiVersion are of the generation's own."""
    items = yaml.safe_load_all(dedent(text))
    return [{"apiVersion": api_version} | item for item in items]


def early():
    """The two files of the first stages."""
    return yaml.safe_load(EARLY_NODES), yaml.safe_load(EARLY_POD)

"""A pod `p` with one device on the first node, as each generation of the device API has it."""

COMMAND = "[sh, -c, 'export; echo ready; sleep infinity']"
K8SRM = f"""\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {{name: toys}}
spec: {{driver: toys.example.com, nodeName: node-0, devices: [{{name: d0}}]}}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {{name: toy}}
spec: {{definition: {{driver: toys.example.com}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: default}}
spec:
  containers: [{{name: c, image: x, command: {COMMAND}, devices: [{{name: toy}}]}}]
  deviceClaims: {{devices: [{{name: toy, class: toy}}]}}
"""
EVOLUTION = f"""\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourcePool
metadata: {{name: toys}}
spec: {{nodeName: node-0, driverName: toys.example.com, devices: [{{name: d0}}]}}
---
apiVersion: resource.k8s.io/v1alpha2
kind: DeviceClass
metadata: {{name: toy}}
requirements: [{{deviceSelector: "device.driverName == 'toys.example.com'"}}]
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {{name: t, namespace: default}}
spec: {{spec: {{requests: [{{name: fast, deviceClassName: toy}}]}}}}
---
apiVersion: resource.k8s.io/v1alpha2
kind: Pod
metadata: {{name: p, namespace: default}}
spec:
  containers:
  - {{name: c, image: x, command: {COMMAND}, resources: {{claims: [{{name: gpu}}]}}}}
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: t}}]
"""
CLASSIC = f"""\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {{name: t, namespace: default}}
spec: {{spec: {{resourceClassName: fake.3-shake.com}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: default}}
spec:
  containers:
  - {{name: c, image: x, command: {COMMAND}, resources: {{claims: [{{name: gpu}}]}}}}
  resourceClaims: [{{name: gpu, source: {{resourceClaimTemplateName: t}}}}]
"""
TODAY = f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: t, namespace: default}}
spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu.example.com}}}}]}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: default}}
spec:
  containers:
  - {{name: c, image: x, command: {COMMAND}, resources: {{claims: [{{name: gpu}}]}}}}
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: t}}]
"""

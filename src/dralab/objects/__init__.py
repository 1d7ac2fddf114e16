"""Typed reading of pods, nodes, claims and taints as JSON objects, and Kubernetes' rules on them.

Every rule that Kubernetes has once is here once, as in k8s.io/component-helpers; scheduler,
controllers, nodes, the server and the commands on files ask the same function.

    metadata         keys, owners
    conditions       conditions in the status
    pods             finished, ready, its group, its containers
    requests         what a pod requests of a node
    nodes            which nodes may run a pod for the nodes' own sake
    claims           which claims a pod has, and what a claim says
    taints           which taints of nodes a pod tolerates
    device_taints    which taints of devices a request tolerates
    slices           pools and their newest generation
    extended_resources  what devices provide under the name of a resource
    volumes          which volume serves which claim
    workloads        the pods that a workload asks for, how a Job has ended
    quota            what objects count against a quota

Functions take objects as the API carries them and change nothing. Whether an object is valid is
left to `api`; which devices a claim gets, to `allocation`; asking a server, to `runtime`.
"""

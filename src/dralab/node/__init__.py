"""Simulated nodes: leases, status, and a kubelet that runs pods.

`kubelets` is the component, for one node or thousands; `pods` runs the life cycle of one pod;
`claims` and `plugins` talk to drivers; `simulated_runtime` and `process_runtime` run containers.
Drivers are in `drivers`, or external programs with a plugin socket.
"""

"""Nodes without machines: leases, status, and a kubelet that runs pods.

`kubelets` is the part, for one node or thousands; `pods` brings one pod through its life; `claims`
and `plugins` speak to drivers; `simulated_runtime` and `process_runtime` run containers. Drivers
themselves are left to `drivers`, or to whoever listens on a plugin's socket.
"""

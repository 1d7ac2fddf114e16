"""The fast engine: pods are simulated, and dralab's scheduler decides in memory.

There are no servers, watches and kubelets between a decision and what follows from it. Nodes, pods
and devices are one `ClusterState`, and pods are decided by the code of `--scheduler dralab`: the
same queue, the same cycle, gangs, preemption. What a control plane adds in time are numbers.
"""

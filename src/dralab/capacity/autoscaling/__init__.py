"""What autoscalers decide: which nodes to ask for, and which to give back.

`cluster_autoscaler` and `karpenter` follow the programs of those names. Both ask the scheduler's
model what fits on a node that is not there yet. When they look, and how long a node takes, is left
to a simulation.
"""

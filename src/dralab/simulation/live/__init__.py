"""Autoscalers in a cluster that runs: `dralab up --autoscaler`.

They are those of scenarios (`engines.autoscaling`), on the wall's clock and with the API's objects:
NodePools of Karpenter, or the ConfigMaps of cluster-autoscaler's provider kwok. Their machines are
simulated nodes, which the part `components.nodes` runs.
"""

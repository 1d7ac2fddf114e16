"""Requests that others answer: nodes, pods, Services and aggregated servers.

Which servers are aggregated is known to `verbs.aggregation`.
"""

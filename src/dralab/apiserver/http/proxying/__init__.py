"""Requests that others answer: nodes, pods, Services and aggregated servers."""

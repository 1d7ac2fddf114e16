"""Autoscalers and the machines of node pools, for the engines that let nodes come and go.

What they decide is in `capacity.autoscaling`; when they look is decided here, and what a machine's
coming and going means is left to the engine (`machines.PoolHost`).
"""

"""Drivers: the SDK that they are written with, and those that come along.

A driver says which devices a node has and what a container with them sees (`driver`); publishing,
checkpoints, CDI files and sockets are done for it (`hosted_plugin`, `publishing`, `sockets`). The
kubelet's side is left to `node`; the two meet at `contracts.plugin` and at the API.
"""

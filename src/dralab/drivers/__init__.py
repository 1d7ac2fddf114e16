"""Drivers: the SDK for writing them, and the built-in ones.

A driver defines which devices a node has and what a container with them gets (`driver`). The SDK
does publishing, checkpoints, CDI files and sockets (`hosted_plugin`, `publishing`, `sockets`). The
kubelet's side is in `node`; the two communicate through `contracts.plugin` and the API.
"""

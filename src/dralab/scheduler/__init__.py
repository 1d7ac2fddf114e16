"""The scheduler: chooses a node and devices for each pod.

`cycle` decides on an in-memory state and writes nothing; `binding` writes the decisions.
`allocation` decides what a claim may get; the nodes start containers.
"""

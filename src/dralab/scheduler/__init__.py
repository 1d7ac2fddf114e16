"""Which node for which pod, with which devices.

`cycle` decides on a state in memory and writes nothing; `binding` writes what was decided. What a
claim may get is left to `allocation`; starting containers, to whoever runs the nodes.
"""

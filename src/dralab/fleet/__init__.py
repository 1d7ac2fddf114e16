"""Sample fleets: realistic nodes and devices, in every API generation.

`shapes` builds a `SampleFleet` from a name and a seed; `rendering` writes it as the objects of one
generation. Devices are described once; `dralab.drivers` and `dralab.allocation` use them.
"""

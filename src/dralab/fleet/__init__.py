"""Sample capacity: nodes and their devices, as people really have them, in every API generation.

`shapes` builds a `SampleFleet` from a name and a seed; `rendering` writes it as the objects of one
generation. Devices are described once. What a driver does with them is left to `dralab.drivers`,
what they mean for a claim, to `dralab.allocation`.
"""

"""Which of the possible allocations to take: policies, scores, and the order of nodes and devices.

`search` decides what is possible.
"""

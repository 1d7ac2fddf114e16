"""Which of the possible allocations to take: policies, scores, and the order of nodes and devices.

What is possible at all is left to `search`.
"""

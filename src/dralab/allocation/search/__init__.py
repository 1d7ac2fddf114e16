"""The search: whether claims can be met on one node, and with which devices.

`setup` reads a problem into numbers (`node_devices`, `counter_groups`, `alternatives`),
`feasibility` tells what cannot work, `backtracking` and `reduction` find what does. Which of the
possible allocations is better is left to `policy`; what is kept between searches, to `inventory`.
"""

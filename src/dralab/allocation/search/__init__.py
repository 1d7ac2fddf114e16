"""The search: whether claims can be satisfied on one node, and with which devices.

`setup` reads a problem into numbers (`node_devices`, `counter_groups`, `alternatives`),
`feasibility` detects what is impossible, `backtracking` and `reduction` find solutions. `policy`
ranks possible allocations; `inventory` keeps state between searches.
"""

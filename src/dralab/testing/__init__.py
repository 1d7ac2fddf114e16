"""Simulation testing: a program against the real verbs of the server, with faults from one seed.

`faults` says what can happen to a program and draws it from a seed, `systematic` plans it for each
place of the run without faults, `process`, `client` and `watch`
make it happen between a program and the server, `world` runs one trial, `oracles` and `final_state`
judge it, `shrinking` finds the shortest schedule that still fails. Scenario files are read by
`scenario`. What a controller, the scheduler or a node does is left to their packages; the simulated
weeks of workload are in `simulation`.
"""

"""Simulation: runs weeks of workload in seconds.

A `scenario` names a fleet (`platforms`), a workload (`workloads`), a scheduler and what goes wrong;
one of the `engines` runs it, by the rules of `lifecycle`. `results` has the numbers, `reports` the
pages, `campaigns` grids of runs, `reproductions` published experiments. Nothing here knows HTTP,
threads or the wall clock but `engines.external`.
"""

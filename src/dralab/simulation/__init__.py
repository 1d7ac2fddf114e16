"""Weeks of workload in seconds: what comes in, who decides, what comes out.

`workloads` and `platforms` read what other tools write. `batch` runs rigid jobs on whole machines
(Batsim's world); `openb` places GPU pods in an order without time (the FGD experiment); `pods`
runs pods on nodes with devices in simulated time. Serving an API to an outside scheduler while
time is simulated is in `outside`. Nothing here knows HTTP, threads or the wall clock but `outside`.
"""

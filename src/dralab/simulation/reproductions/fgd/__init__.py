"""The FGD experiment: GPU pods placed one by one, in an order without time.

Source of the rules: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023, and the simulator published with it.
"""

"""The first stages of k8srm: nodes, pools, devices and capacities with topologies, in plain files.

Stage K0 (15 March 2024) calls a device a resource; K1 (22 April) renamed it; K2 (26 April) knows
only a number of devices per pool. Their arithmetic is kept, their greed is not: the search is
complete. Later stages, with Kubernetes kinds, are left to the package above.
"""

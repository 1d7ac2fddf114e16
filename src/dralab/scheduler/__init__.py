"""The live scheduler: follows a cluster, tries pods one after the other, and writes the results.

Where a pod goes, and why nowhere, is decided by `scheduling`; `queue` and `waiting_pods` hold what
waits, `binding` writes the decisions. The nodes start containers.
"""

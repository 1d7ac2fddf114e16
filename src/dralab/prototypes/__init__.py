"""Older device APIs: each has a reader and a writer for the common allocation problem.

They hold types, defaults, limits, CEL environments and statuses. Choosing devices is left to
`dralab.allocation`; serving them to kubectl, to `dralab.cluster`, which registers their kinds.
"""

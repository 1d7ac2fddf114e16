"""Older device APIs: each a reader and a writer around the one allocation problem.

Their types, defaults, limits, CEL environments and status. Choosing devices is left to
`dralab.allocation`; serving them to kubectl, to `dralab.cluster`, which registers their kinds.
"""

"""The engines that run scenarios, behind one protocol.

`batch`: rigid jobs on whole machines (as in Batsim). `fast`: dralab's scheduler in memory, with
its own choice of nodes or that of a policy. `cluster`: the whole of `dralab up`
in simulated time. `external`: any scheduler, unmodified, over HTTP.
"""

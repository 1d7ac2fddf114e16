"""The engines that run scenarios, behind one protocol.

`batch`: rigid jobs on whole machines (as in Batsim). `gpu`: pods on nodes with GPUs, built-in
policies. `cluster`: the scheduler, controllers and kubelets of `dralab up`, in simulated time.
`external`: any scheduler, unmodified, over HTTP. `ticks`: as in k8s-cluster-simulator.
"""

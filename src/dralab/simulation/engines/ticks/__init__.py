"""The engine of k8s-cluster-simulator: ticks, submitters, one scheduler, pods whose use has phases.

Source of the rules: pfnet-research/k8s-cluster-simulator, its README and examples. Differences on
purpose: errors of a submitter or scheduler end the run, deleting an unknown pod is an error that
names it, metrics come every `metricsTick` and not one tick later, and names come sorted.
"""

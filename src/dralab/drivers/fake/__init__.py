"""Drivers without hardware: GPUs, network cards, CPUs, and the devices of a fleet's shape.

Names, devices and environment of the first three are those of kubernetes-sigs/dra-example-driver
(0.4, Kubernetes 1.36), so that what is tried here works there.
"""

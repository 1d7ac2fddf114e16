"""The fake driver of classic DRA (3-shake's fake-dra-driver): its half of the control plane.

The controller negotiates nodes and writes what each claim gets into the node's NodeAllocationState.
The plugin publishes devices and prepares them on the node.
"""

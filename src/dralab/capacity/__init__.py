"""Questions about capacity: what if, which pods to move, which nodes to add.

`completion` makes objects of files complete, `model` is the cluster that they describe: the
scheduler's own state in memory, on which pods are placed and taken away again and nothing is
written. `changes` are what may happen to it, `what_if` compares before and after, `moves` finds
pods to move, `planning` nodes to add or to remove.

The rules of scheduling are the scheduler's, those of devices the allocator's.
"""

"""Questions about capacity: what if, which pods to move, which nodes to add.

The cluster in memory, on which pods are placed and taken away again, is `scheduling.model`.
`changes` are what may happen to it, `what_if` compares before and after, `moves` finds pods to
move, `planning` nodes to add or to remove.

The rules of scheduling are `scheduling`'s, those of devices the allocator's.
"""

"""resource.k8s.io: v1 is the hub; other versions are described by their differences.

Typed forms, defaults, validation, conversion and status rules. Choosing devices is left to
`dralab.allocation`, evaluating selectors to `dralab.cel`.
"""

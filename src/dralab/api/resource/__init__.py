"""resource.k8s.io: v1 is the hub; other versions are described by their differences.

Shapes, defaults, validation, conversion and status rules, on plain mappings; `rules` is the way
in for a server, `files` for what is read from files. Choosing devices is left to
`dralab.allocation`, evaluating selectors to `dralab.cel`.
"""

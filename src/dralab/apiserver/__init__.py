"""A Kubernetes API server on four floors: `http`, `verbs`, `access`, `storage`.

Controllers, scheduler and nodes are clients, on the floors above.
"""

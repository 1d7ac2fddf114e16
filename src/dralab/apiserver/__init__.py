"""A Kubernetes API server: storage, the rules of the verbs, and HTTP.

Controllers, scheduler and nodes are clients, on the floors above.
"""

"""A Kubernetes API server: storage, the rules of the verbs, and HTTP.

Controllers, scheduling and nodes are left to the floors above, which meet here as clients.
"""

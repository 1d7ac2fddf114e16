"""Objects that the server writes and deletes by itself: its own, statuses, expired events.

Controllers of Kubernetes are in `dralab.controllers`.
"""

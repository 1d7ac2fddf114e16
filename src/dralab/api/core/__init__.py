"""The rules of the standard kinds: defaults, fields that the server sets, and validation.

One strategy per kind that has rules; `strategies.strategies()` lists them all. The kinds of
resource.k8s.io are left to `api.resource`.
"""

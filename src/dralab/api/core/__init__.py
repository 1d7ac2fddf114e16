"""What a server makes of the standard kinds: defaults, what it sets itself, and what it forbids.

One strategy per kind that has rules; `strategies.strategies()` lists them all. The kinds of
resource.k8s.io are left to `api.resource`.
"""

"""The audit log: who asked for what, and what came of it (audit.k8s.io/v1).

`policy` says how much is recorded of which request, `events` what a record looks like, `log` where
records go. When each stage is reached is left to `http`.
"""

"""The audit log: who requested what, with which result (audit.k8s.io/v1).

`policy` decides how much of a request is recorded, `events` builds records, `log` writes them.
`http` calls them at each stage.
"""

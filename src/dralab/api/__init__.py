"""What the Kubernetes API means: objects, kinds, versions, Status errors, field errors.

Serving it over HTTP is left to `apiserver`; deciding which device a claim gets, to
`allocation`; older device APIs, to `prototypes`.
"""

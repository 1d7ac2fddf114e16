"""The Kubernetes API: objects, kinds, versions, Status errors, field errors.

`apiserver` serves it over HTTP; `allocation` chooses devices for claims; `prototypes` has older
device APIs.
"""

"""The rules of resource.k8s.io, one module per idea; `dralab.api.resource.rules` is the way in.

Every function takes values of the hub form whose types are right (`structure.problems` is empty)
and returns or appends field errors in the order and words of a real server.
Source of the texts: k8s.io/kubernetes `pkg/apis/resource/validation`, 1.36 and 1.37.
"""

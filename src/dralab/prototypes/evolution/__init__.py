"""The dra-evolution prototype: `resource.k8s.io/v1alpha2` as it might have become.

Its group and version also named an API of Kubernetes itself, with other kinds: a server serves one
meaning at a time. Today's API is left to `dralab.api`.
"""

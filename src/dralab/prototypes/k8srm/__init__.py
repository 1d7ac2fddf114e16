"""The k8srm prototype (`devmgmtproto.k8s.io/v1alpha1`) and its earlier stages.

Commits are named in docs/guides/api-generations.md. Today's API is left to `dralab.api`.
"""

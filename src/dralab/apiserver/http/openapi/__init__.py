"""OpenAPI documents, generated from the served kinds: one per group and version, and one of all.

Clients read them to check what they send (`kubectl create`), to merge (`kubectl apply`) and to
explain. Which paths they are served under and how they are kept is left to the server's edge.
"""

from dralab.apiserver.http.openapi.documents import index, places, version2, version3

__all__ = ["index", "places", "version2", "version3"]

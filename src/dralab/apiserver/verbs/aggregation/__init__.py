"""Aggregated API servers: groups of other servers, registered by APIServices.

`services` follows the APIServices and checks whether their servers answer, `discovery` adds their
groups to the documents. Passing requests on is left to `http.aggregated`.
"""

"""Aggregated API servers: groups that another server answers, as APIServices say.

`services` follows the APIServices and checks whether their servers answer, `discovery` adds their
groups to the documents. Passing requests on is left to `http.aggregated`.
"""

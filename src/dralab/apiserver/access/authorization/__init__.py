"""Authorization: the authorizers of a server, and their requests.

`attributes` is the question and the answer, `requests` reads a question from a request, `rules`
decides by one policy rule, `rbac` by roles and bindings. The user is determined by
authentication.
"""

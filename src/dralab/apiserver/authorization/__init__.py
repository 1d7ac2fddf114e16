"""Who may do what: the authorizers of a server, and what they are asked.

`attributes` is the question and the answer, `requests` reads a question from a request, `rules`
decides by one policy rule, `rbac` by roles and bindings. Who asks is found out by
authentication.
"""

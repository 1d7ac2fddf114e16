"""Authentication: tokens, client certificates and service accounts, in a chain.

`authorization` decides what a user may do; `http` reads TLS and headers.
"""

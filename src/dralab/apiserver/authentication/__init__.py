"""Who sends a request: tokens, client certificates, service accounts, in a chain.

What a user may do is left to authorization; TLS and headers are read by `http`.
"""

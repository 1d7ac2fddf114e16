"""Connections: sockets, TLS, the ASGI application, and the turns that requests take.

What is answered is decided by `http.application`.
"""

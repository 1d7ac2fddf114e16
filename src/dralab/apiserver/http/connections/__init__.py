"""Connections: sockets, TLS, the ASGI application, and the turns that requests take."""

"""The components that run with a server, and the initial example.

`cluster` serves the API.
"""

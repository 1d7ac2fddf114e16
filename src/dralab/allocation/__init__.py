"""Devices for claims, as a function of a snapshot.

Reading objects from a server, writing results back and waiting for anything is left to
`scheduler` and `cli`; evaluating expressions, to `cel`.
"""

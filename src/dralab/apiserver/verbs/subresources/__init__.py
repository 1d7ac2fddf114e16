"""Subresources (scale, eviction, binding, exec, …) and the reviews that clients create.

Streams to containers are passed on by `http.proxying`.
"""

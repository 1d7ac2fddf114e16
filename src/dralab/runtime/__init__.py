"""Clients of an API server and reconcile loops, live or in simulated time.

What a controller does is left to the controller; how the server answers, to `apiserver`.
"""

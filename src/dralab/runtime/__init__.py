"""Clients of an API server and reconcile loops, live or in simulated time.

The controllers themselves are in `controllers`, the server in `apiserver`.
"""

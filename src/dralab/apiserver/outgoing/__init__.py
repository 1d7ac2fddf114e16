"""Calls that the server makes itself: of webhooks, conversions and aggregated API servers.

`targets` says where a call may go, `client` makes it. What is said is left to the callers.
"""

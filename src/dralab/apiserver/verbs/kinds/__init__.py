"""Kinds with rules of their own: definitions, their objects, policies, webhooks, devices.

The rules of a kind's own fields are in `dralab.api`; here are those that need other objects.
"""

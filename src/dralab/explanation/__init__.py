"""Why not, and why this one: facts, a minimal conflict, remedies, and sentences for people.

`explain` is the way in. The search itself, and its answers, are left to the package around;
telling a cluster (events, conditions), to `scheduler`.
"""

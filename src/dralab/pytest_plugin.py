"""Fixtures for whoever tests against a Kubernetes API; what a cluster does is left to `cluster`."""

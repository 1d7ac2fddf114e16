"""Versioned objects and the log of their changes, behind one protocol.

What an object means, who may write it and what a watcher may see is left to the packages above.
"""

"""The verbs of the API on plain objects, without HTTP and JSON.

`storage` keeps the objects, `http` encodes them, and the controllers act on them.
"""

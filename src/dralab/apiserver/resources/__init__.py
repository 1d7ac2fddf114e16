"""The verbs of the API on plain objects: what a server does, without HTTP and without JSON.

How objects are kept is left to `storage`, how they are spelled to `http`, what follows from
them to the controllers.
"""

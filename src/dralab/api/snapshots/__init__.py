"""A cluster in a file: what decides which pod gets which device, and nothing more.

`kept_fields` says what is saved of each object, `anonymous` gives other names to it, `files` writes
and reads. Reading the objects from a cluster is left to `dralab.runtime.reading`.
"""

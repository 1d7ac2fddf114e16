"""The components of a cluster: what runs beside a server, and the example it begins with.

Serving the API is left to `cluster`; what each component does, to the component.
"""

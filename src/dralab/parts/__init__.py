"""The moving parts put together: what runs beside a server, and the example it begins with.

Serving the API is left to `cluster`; what each part does, to the part.
"""

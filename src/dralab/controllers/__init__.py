"""What keeps a cluster as its objects say: one file per controller, all on `runtime`'s engine.

A controller knows the API and nothing else: it never calls another one, nor the scheduler, a node
or a driver. Where pods run is left to `scheduler`; running them, to `node`.
"""

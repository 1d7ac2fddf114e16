"""Controllers: one file each, all on the engine of `runtime`.

A controller uses only the API: it never calls another controller, the scheduler, a node or a
driver. `scheduler` decides where pods run, and `node` runs them.
"""

"""Classic DRA: resource.k8s.io/v1alpha2 of Kubernetes 1.26 to 1.30, and the fake driver's kinds.

Only what the objects look like. Claims from templates are left to `controllers.classic_claims`,
the talk with the driver to `scheduler.classic`, the driver's side to `drivers.classic`.
"""

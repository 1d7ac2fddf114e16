"""The Common Expression Language as Kubernetes enables it for devices.

Parser, checker, cost estimator and compiler. Which expressions an object may hold is left to
`api`; what a matching device is used for, to `allocation`.
"""

"""A dry lab for Kubernetes devices.

The floors, from the bottom up: `values` and `kernel`; `api` and `cel`; `allocation`;
`apiserver`, `prototypes`, `contracts` and `fleet`; `runtime`; `scheduler`, `controllers`,
`node` and `drivers`; `cluster`; `simulation`; `testing`; `pytest_plugin`; `cli`.
A package imports only from floors below its own (docs/concepts/architecture.md).
"""

__version__ = "0.1.0"

"""A dry lab for Kubernetes devices.

The floors, from the bottom up: `values` and `kernel`; `api` and `cel`; `objects`; `allocation`;
`apiserver`, `prototypes`, `contracts` and `fleet`; `runtime` and `virtualtime`; `scheduler`,
`controllers`, `node` and `drivers`; `components` and `capacity`; `cluster`; `simulation` and
`drivercheck`; `testing`; `web` and `pytest_plugin`; `cli`.
A package imports only from floors below its own (docs/concepts/architecture.md).
"""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return `simulation_test`, imported when it is used: `import dralab` stays cheap."""
    if name == "simulation_test":
        return importlib.import_module("dralab.testing.decorator").simulation_test
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""A dry lab for Kubernetes devices.

    import dralab

    lab = dralab.open("dump.yaml")
    print(lab.explain("ml/train"))
    run = dralab.simulate("week.yaml", scheduler="fgd", seed=1)
    print(run.summary["wait_mean"])

The names are imported when they are used, so that `import dralab` stays cheap; what each does is
on the page docs/reference/python.md.

The floors, from the bottom up: `values`, `kernel` and `files`; `api` and `cel`; `objects`;
`allocation`; `scheduling`; `apiserver`, `prototypes`, `contracts`, `explanation` and `fleet`;
`runtime` and `virtualtime`; `scheduler`, `controllers`, `node` and `drivers`; `components` and
`capacity`; `cluster`; `simulation` and `drivercheck`; `testing`; `lab`, `web` and
`pytest_plugin`; `cli`.
A package imports only from floors below its own (docs/concepts/architecture.md).
"""

import importlib
from typing import Any

__version__ = "0.2.0"
__all__ = [
    "AllocationAnswer", "BadInput", "Cluster", "ColumnTable", "ExplanationAnswer", "Grid",
    "HelpAnswer", "InputError", "Lab", "MovesAnswer", "Options", "PlanAnswer", "Policy",
    "PolicyNode", "PolicyState", "PolicyTask",
    "Run", "SimulatedCluster", "UnknownObject", "WhatIfAnswer", "campaign", "open", "simulate",
    "simulation_test",
]  # fmt: skip

ANSWERS = (
    "AllocationAnswer", "ColumnTable", "ExplanationAnswer", "HelpAnswer", "MovesAnswer",
    "PlanAnswer", "WhatIfAnswer",
)  # fmt: skip
# Where each name is, and its name there.
_PLACES = {
    **{name: ("dralab.lab.answers", name) for name in ANSWERS},
    **{name: ("dralab.lab.view", name) for name in ("BadInput", "Lab", "UnknownObject", "open")},
    "Cluster": ("dralab.cluster", "Cluster"),
    "InputError": ("dralab.scenarios.errors", "InputError"),
    "Options": ("dralab.cluster", "Options"),
    "Grid": ("dralab.lab.campaigns", "Grid"),
    "Policy": ("dralab.simulation.policies.protocol", "OwnPolicy"),
    **{
        name: ("dralab.simulation.policies.protocol", name)
        for name in ("PolicyNode", "PolicyState", "PolicyTask")
    },
    "Run": ("dralab.lab.runs", "Run"),
    "SimulatedCluster": ("dralab.lab.lab_cluster", "LabCluster"),
    "campaign": ("dralab.lab.campaigns", "campaign"),
    "simulate": ("dralab.lab.runs", "simulate"),
    "simulation_test": ("dralab.testing.decorator", "simulation_test"),
}


def __getattr__(name: str) -> Any:
    """Return a public name, imported when it is used first."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, inside = _PLACES[name]
    found = globals()[name] = getattr(importlib.import_module(module), inside)
    return found


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted({*globals(), *__all__})

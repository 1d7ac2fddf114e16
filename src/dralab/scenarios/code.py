"""Users' schedulers and drivers: `file.py:Class`, in the folder of the scenario.

What a scheduler's class may define is in `DECISIONS` (`simulation.policies.protocol.OwnPolicy` says
what each is); `decide` with `begin` and `end` is Batsim's protocol for rigid jobs.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dralab.scenarios.errors import InputError, inside

DECISIONS: Final = ("order", "prefer", "place", "preempt", "resize", "decide")


def is_file(scheduler: str) -> bool:
    """Return whether a scheduler is named as `file.py:Class`."""
    file, colon, name = scheduler.rpartition(":")
    return bool(colon) and file.endswith(".py") and name.isidentifier()


def check(scheduler: str, scenario: Path) -> None:
    """Load the class, and refuse one that decides nothing."""
    made = load_class(scheduler, scenario)
    if not any(hasattr(made, name) for name in DECISIONS):
        problem = f"{scheduler} defines none of {', '.join(DECISIONS)}"
        raise InputError(scenario, problem, where="scheduler")


def load_class(named: str, scenario: Path, where: str = "scheduler") -> Callable[..., Any]:
    """Return the class of `file.py:Class`; InputError: no such file or class."""
    file, _, name = named.rpartition(":")
    path = inside(scenario.parent, file, file=scenario, where=where)
    module_name = f"dralab_{where}_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(scenario, f"{file!r} is not a Python file", where=where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(path, f"cannot be loaded: {error!r}") from error
    made: Callable[..., Any] | None = getattr(module, name, None)
    if made is None:
        raise InputError(path, f"there is no class {name!r}")
    if not callable(made):
        raise InputError(path, f"{name!r} is {type(made).__name__}, not a class or a function")
    return made

"""Sums over the containers of a pod: concurrent ones are added, init containers run in turn.

Source: k8s.io/component-helpers `resource.AggregateContainerRequests`. What is added, requests or
limits, and in which unit, is the caller's.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number

_N = TypeVar("_N", int, Number)


def at_peak(spec: JsonObject, of: Callable[[JsonObject], dict[str, _N]]) -> dict[str, _N]:
    """Return the peak of what a pod's containers need; `of` reads one container."""
    total: dict[str, _N] = {}
    for container in spec.get("containers") or ():
        add(total, of(container))
    inits = spec.get("initContainers")
    if inits:
        sidecars: dict[str, _N] = {}
        peak: dict[str, _N] = {}
        for container in inits:
            needed = of(container)
            if container.get("restartPolicy") == "Always":
                add(sidecars, needed)
                needed = sidecars
            else:
                add(needed, sidecars)
            _raise_to(peak, needed)
        add(total, sidecars)
        _raise_to(total, peak)
    return total


def add(total: dict[str, _N], more: Mapping[str, _N]) -> None:
    """Add amounts to a total, in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, _N], other: Mapping[str, _N]) -> None:
    for name, amount in other.items():
        total[name] = max(total.get(name, 0), amount)

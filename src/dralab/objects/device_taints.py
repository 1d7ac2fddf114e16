"""Taints of devices, and which of them a request tolerates.

Source: k8s.io/dynamic-resource-allocation `resourceclaim.ToleratesTaint`. The verifier of
allocations has its own copy on purpose: it judges what the search makes of this one.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Self

from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

_NOTHING: Final[JsonObject] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """Keeps claims away from a device unless they tolerate it; unknown effects count as None."""

    key: str
    value: str = ""
    effect: str = "None"

    @classmethod
    def read(cls, taint: JsonObject) -> Self:
        """Return a taint of a device or of a DeviceTaintRule."""
        return cls(taint["key"], taint.get("value") or "", taint.get("effect") or "None")

    @property
    def repels(self) -> bool:
        """Whether the taint affects allocations."""
        return self.effect in {"NoSchedule", "NoExecute"}


def rule_selects(rule: JsonObject, driver: str, pool: str, device: str | None = None) -> bool:
    """Return whether a DeviceTaintRule selects a device; without a device, the pool.

    No selector selects no device, an empty one selects all.

    >>> rule = {"spec": {"deviceSelector": {"driver": "gpu.example.com", "device": "gpu-0"}}}
    >>> rule_selects(rule, "gpu.example.com", "node-1", "gpu-0")
    True
    """
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    asked = {"driver": driver, "pool": pool} | ({} if device is None else {"device": device})
    return all(selector.get(name) in {None, value} for name, value in asked.items())


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """A toleration of a request; `written` is the mapping that results copy."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    written: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, compare=False)

    @classmethod
    def read(cls, toleration: JsonObject) -> Self:
        """Return a toleration; its seconds only affect evictions and stay in `written`."""
        return cls(
            key=toleration.get("key") or "",
            operator=toleration.get("operator") or "Equal",
            value=toleration.get("value") or "",
            effect=toleration.get("effect") or "",
            written=toleration,
        )

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether the taint is tolerated; an unknown operator tolerates nothing."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in {"", "Equal"} and self.value == taint.value

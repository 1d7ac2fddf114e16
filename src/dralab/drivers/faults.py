"""Fault injection: driver faults that a kubelet and a cluster must handle.

>>> parse("prepare=slow:2.5x3")
CallFault(call='prepare', kind='slow', seconds=2.5, times=3)
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from dralab.contracts.plugin import ClaimRef, DeviceHealth, PluginError, PrepareResult
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.kernel.clock import SECOND
from dralab.values.records import dataclass

# call → what may happen to it, in words for the help.
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "prepare": {
        "slow": "the answer takes SECONDS",
        "fail": "the whole call fails",
        "error": "each claim is answered with an error",
        "skip": "no claim is answered",
        "crash-before": "the driver crashes before doing anything",
        "crash-after": "the driver crashes after the work, before it answers",
        "lose-cdi": "the CDI files are lost right after the answer",
    },
    "unprepare": {
        "slow": "the answer takes SECONDS",
        "fail": "the whole call fails",
        "error": "each claim is answered with an error",
        "skip": "no claim is answered",
        "crash-before": "the driver crashes before doing anything",
        "crash-after": "the driver crashes after the work, before it answers",
    },
    "health": {
        "unhealthy": "every device is unhealthy",
        "flap": "every device alternates between unhealthy and healthy every SECONDS",
    },
    "slices": {
        "republish": "the devices are published as a new generation every SECONDS",
        "disappear": "the slices are deleted and published again every SECONDS",
    },
}
PATTERN: Final = re.compile(r"(\w+)=([a-z-]+?)(?::([0-9.]+))?(?:x([0-9]+))?")
DIED: Final = 137


@dataclass(frozen=True, slots=True)
class CallFault:
    """One fault: it happens to the next `times` calls; 0 means to all."""

    call: str
    kind: str
    seconds: float = 1.0
    times: int = 0


def parse(text: str) -> CallFault:
    """Return the fault of a text `CALL=KIND[:SECONDS][xTIMES]`. ValueError."""
    match = PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not CALL=KIND[:SECONDS][xTIMES], such as prepare=slow:2x3")
    call, kind = match[1], match[2]
    if call not in KINDS:
        raise ValueError(f"unknown call {call!r}; calls that can fail: {', '.join(KINDS)}")
    if kind not in KINDS[call]:
        raise ValueError(f"{call} has no fault {kind!r}; known: {', '.join(KINDS[call])}")
    return CallFault(call, kind, float(match[3] or 1.0), int(match[4] or 0))


class HostProcess(Protocol):
    """What faults need of the process; replaced in tests."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def now(self) -> int:
        """Return the time, in nanoseconds since the epoch."""
        ...

    def die(self, code: int) -> None:
        """End the process at once, with nothing cleaned up."""
        ...


class FaultyPlugin:
    """A plugin with injected faults around another plugin."""

    def __init__(
        self, plugin: HostedPlugin, process: HostProcess, faults: Sequence[CallFault] = ()
    ) -> None:
        self.plugin = plugin
        self.process = process
        self.faults = list(faults)

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self.plugin.driver

    def inject(self, fault: CallFault) -> None:
        """Add a fault."""
        self.faults.append(fault)

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare, or fail as the fault says."""
        kinds = self._happening("prepare")
        if "error" in kinds:
            return {ref.uid: PrepareResult(error="a fault was injected") for ref in claims}
        answer = self.plugin.prepare(claims)
        self._after(kinds)
        if "lose-cdi" in kinds:
            for path in list(self.plugin.directory.texts()):
                self.plugin.directory.remove(path.rpartition("/")[2])
        return {} if "skip" in kinds else answer

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare, or fail as the fault says."""
        kinds = self._happening("unprepare")
        if "error" in kinds:
            return dict.fromkeys((ref.uid for ref in claims), "a fault was injected")
        answer = self.plugin.unprepare(claims)
        self._after(kinds)
        return {} if "skip" in kinds else answer

    def health(self) -> Sequence[DeviceHealth]:
        """Return what the driver says, or that every device is unhealthy."""
        if not any(self._is_ill(fault) for fault in self.faults):
            return self.plugin.health()
        driver = self.plugin.code
        return [
            DeviceHealth(
                pool=driver.node,
                device=device["name"],
                health="Unhealthy",
                message="a fault was injected",
            )
            for part in driver.inventory()
            for device in part.devices
        ]

    def _is_ill(self, fault: CallFault) -> bool:
        if fault.call != "health":
            return False
        half = max(1, int(fault.seconds * SECOND))
        return fault.kind == "unhealthy" or self.process.now() // half % 2 == 0

    def _happening(self, call: str) -> set[str]:
        """Return the fault of this call; some faults take effect here."""
        due = [fault for fault in self.faults if fault.call == call]
        for fault in due:
            if fault.times:
                index = self.faults.index(fault)
                self.faults[index : index + 1] = (
                    [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                )
        kinds = {fault.kind for fault in due}
        for fault in due:
            if fault.kind == "slow":
                self.process.pause(fault.seconds)
        if "crash-before" in kinds:
            self.process.die(DIED)
        if "fail" in kinds:
            raise PluginError("a fault was injected")
        return kinds

    def _after(self, kinds: set[str]) -> None:
        if "crash-after" in kinds:
            self.process.die(DIED)


def slice_faults(faults: Sequence[CallFault]) -> Sequence[CallFault]:
    """Return the faults of published slices."""
    return [fault for fault in faults if fault.call == "slices"]


def described() -> str:
    """Return all faults as lines of help."""
    lines: list[str] = []
    for call, kinds in KINDS.items():
        lines += [f"{call}={kind}: {text}" for kind, text in kinds.items()]
    return "\n".join(lines)

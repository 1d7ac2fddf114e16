"""A plugin for drivers that exist only in pools of an older API: it prepares any claim.

Containers see each device of theirs as a variable: `DEVICE_FAST=toys.example.com/node-0/d0` for
the request `fast`, `DEVICE_0` for the first one without a name; of k8srm, whose pools have names of
their own, `DEVICE_FAST=toys/d0`. Several devices of one request are numbered: `DEVICE_FAST_0`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from dralab.contracts.cdi import CdiDevice, CdiError, CdiSpec, ContainerEdits, file_name, qualified
from dralab.contracts.cdi_cache import CdiDirectory
from dralab.contracts.plugin import ClaimRef, DeviceHealth, PreparedDevice, PrepareResult


class StandIn:
    """A generic driver plugin, for claims whose allocation has all that is needed."""

    def __init__(self, driver: str, node: str, directory: CdiDirectory) -> None:
        self.driver = driver
        self.node = node
        self.directory = directory

    @property
    def kind(self) -> str:
        """The CDI kind of its devices."""
        return f"dralab.dev/{re.sub('[^A-Za-z0-9_.-]', '-', self.driver)}"

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Write the CDI files of claims."""
        return {ref.uid: self._prepare(ref) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Take the files away."""
        for ref in claims:
            self.directory.remove(file_name(self.kind, ref.uid))
        return {ref.uid: "" for ref in claims}

    def health(self) -> Sequence[DeviceHealth]:
        """Return nothing: the devices are not monitored."""
        return ()

    def _prepare(self, ref: ClaimRef) -> PrepareResult:
        results = orjson.loads((ref.handle or {}).get("data") or "{}").get("results") or ()
        names = [f"{ref.uid}-{number}" for number in range(len(results))]
        variables = _variables(results)
        devices = tuple(
            CdiDevice(name, ContainerEdits(env=(f"{variable}={self._shown(result)}",)))
            for name, variable, result in zip(names, variables, results, strict=True)
        )
        try:
            if devices:
                spec = CdiSpec(kind=self.kind, devices=devices)
                self.directory.write(file_name(self.kind, ref.uid), spec)
        except (CdiError, OSError) as error:
            return PrepareResult(error=f"unable to create CDI spec file for claim: {error}")
        return PrepareResult(
            devices=tuple(
                PreparedDevice(
                    requests=(result["requestName"],) if result.get("requestName") else (),
                    pool=result.get("pool") or self.node,
                    device=result["deviceName"],
                    cdi_ids=(qualified(self.kind, name),),
                )
                for name, result in zip(names, results, strict=True)
            )
        )

    def _shown(self, result: Mapping[str, Any]) -> str:
        place = result.get("pool") or f"{self.driver}/{self.node}"
        return f"{place}/{result['deviceName']}"


def _variables(results: Sequence[Mapping[str, Any]]) -> list[str]:
    asked = [result.get("requestName") or "" for result in results]
    found = []
    for number, name in enumerate(asked):
        text = name or str(number)
        if name and asked.count(name) > 1:
            text += f"_{asked[:number].count(name)}"
        found.append("DEVICE_" + re.sub("[^A-Z0-9]", "_", text.upper()))
    return found

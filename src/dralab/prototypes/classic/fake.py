"""The rules of the fake driver of classic DRA, for its controller and for questions.

Source: fake-dra-driver v0.1.2, with its defects fixed: `split` 0 or absent means whole devices, a
missing count is one, and the selections in the parameters of a class and a claim are applied.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from dralab.objects.metadata import spec_of
from dralab.prototypes.classic.kinds import DRIVER
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

MAX_SPLIT: Final = 1024
PREFIX: Final = "FAKE-"


class DriverError(Exception):
    """The driver refuses; the message becomes an event."""


@dataclass(frozen=True, slots=True)
class DriverParameters:
    """How many devices of one node, and into how many parts each is split (0: it stays whole).

    `models` are patterns (`*`, `?`) for the devices' models: one of them has to fit. `model` is the
    one that the claim selects. `where` is the object that says so, for messages.
    """

    count: int = 1
    split: int = 0
    models: tuple[str, ...] = ("*",)
    where: str = "the claim"
    model: str = ""

    def accepts(self, model: str) -> bool:
        """Return whether devices of a model will do."""
        if self.model not in {"", model}:
            return False
        return "*" in self.models or any(fnmatchcase(model, name) for name in self.models)

    def expressions(self) -> list[str]:
        """Return the same as expressions over `device.model`."""
        found = [f"device.model == {_quoted(self.model)}"] if self.model else []
        if "*" in self.models:
            return found
        if not any(sign in name for name in self.models for sign in "*?"):
            names = ", ".join(map(_quoted, self.models))
            return [*found, f"device.model in [{names}]"]
        patterns = "|".join(map(_pattern, self.models))
        return [*found, f"device.model.matches({_quoted(f'^({patterns})$')})"]


def reference_problem(reference: Mapping[str, Any], of: str, kind: str) -> str:
    """Return the problem of a parametersRef of this driver; empty if it is valid."""
    group = reference.get("apiGroup", "")
    if group != DRIVER:
        return f"incorrect API group: {group}"
    if reference["kind"] != kind:
        return f"unknown {of}.ParametersRef.Kind: {reference['kind']}"
    return ""


def models_of(parameters: JsonObject) -> tuple[str, ...]:
    """Return the models that a DeviceClassParameters selects."""
    selectors = parameters["spec"]["deviceSelector"]
    return tuple(each["name"] for each in selectors if each["type"] == "fake")


def checked(found: JsonDict, where: str) -> DriverParameters:
    """Return the parameters of a FakeClaimParameters. DriverError."""
    spec = spec_of(found)
    count, split = spec.get("count", 1), spec.get("split", 0)
    if count < 1:
        raise DriverError(
            f"error validating {where}: invalid number of Fakes requested: count={count}; "
            "spec.count must be 1 or more"
        )
    if split < 0:
        raise DriverError(
            f"error validating {where}: invalid number of virtual Fakes requested: "
            f"split={split}; spec.split must be 0 or more"
        )
    if split > MAX_SPLIT:
        raise DriverError(
            f"error validating {where}: invalid number of virtual Fakes requested: "
            f"split={split}; spec.split must be {MAX_SPLIT} or less"
        )
    model = (spec.get("selector") or {}).get("model") or ""
    return DriverParameters(count, split, where=where, model=model)


def device_of(name: str) -> str:
    """Return the device that the name of a named resource stands for."""
    return PREFIX + name[len(PREFIX) :]


def _pattern(name: str) -> str:
    """Return a pattern with `*` and `?` as a regular expression."""
    wild = {"*": ".*", "?": "."}
    return "".join(wild.get(sign) or re.escape(sign) for sign in name)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

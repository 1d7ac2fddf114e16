"""What parameters ask of the fake driver: how many devices, in how many parts, and which.

Source: fake-dra-driver v0.1.2, with its defects fixed: `split` 0 or absent means whole devices, a
missing count is one, and the selection in a class's parameters is applied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.objects.metadata import key_of, spec_of
from dralab.prototypes.classic.kinds import DRIVER
from dralab.runtime.client import Client
from dralab.runtime.resources import FAKE_CLASS_PARAMETERS, FAKE_PARAMETERS
from dralab.values.json_types import JsonDict

MAX_SPLIT: Final = 1024


class DriverError(Exception):
    """The driver refuses; what it says becomes an event."""


@dataclass(frozen=True, slots=True)
class DriverParameters:
    """How many devices of one node, and into how many parts each is split (0: it stays whole).

    `models` are patterns (`*`, `?`) for the devices' models: one of them has to fit. `where` is the
    object that says so, for messages.
    """

    count: int = 1
    split: int = 0
    models: tuple[str, ...] = ("*",)
    where: str = "the claim"

    def accepts(self, model: str) -> bool:
        """Return whether devices of a model will do."""
        return "*" in self.models or any(fnmatchcase(model, name) for name in self.models)


def parameters_of(client: Client, claim: JsonDict, class_: JsonDict) -> DriverParameters:
    """Return what a claim of a class asks for.

    DriverError: the parameters of one of them are missing or wrong.
    """
    return replace(_of_claim(client, claim), models=_models_of(client, class_))


def _models_of(client: Client, class_: JsonDict) -> tuple[str, ...]:
    reference: Mapping[str, Any] | None = class_.get("parametersRef")
    if reference is None:
        return ("*",)
    _check(reference, "ResourceClass", "DeviceClassParameters")
    name = reference["name"]
    try:
        found = client.get(FAKE_CLASS_PARAMETERS, name)
    except ApiError as error:
        raise DriverError(f'error getting DeviceClass called "{name}": {error}') from error
    selectors = found["spec"]["deviceSelector"]
    return tuple(each["name"] for each in selectors if each["type"] == "fake")


def _check(reference: Mapping[str, Any], of: str, kind: str) -> None:
    group = reference.get("apiGroup", "")
    if group != DRIVER:
        raise DriverError(f"incorrect API group: {group}")
    if reference["kind"] != kind:
        raise DriverError(f"unknown {of}.ParametersRef.Kind: {reference['kind']}")


def _of_claim(client: Client, claim: JsonDict) -> DriverParameters:
    reference: Mapping[str, Any] | None = claim["spec"].get("parametersRef")
    if reference is None:
        return DriverParameters()
    _check(reference, "ResourceClaim", "FakeClaimParameters")
    namespace = key_of(claim).namespace
    name = reference["name"]
    where = f'FakeClaim called "{name}" in namespace "{namespace}"'
    try:
        found = client.get(FAKE_PARAMETERS, name, namespace)
    except ApiError as error:
        raise DriverError(f"error getting {where}: {error}") from error
    return checked(found, where)


def checked(found: JsonDict, where: str) -> DriverParameters:
    """Return what a FakeClaimParameters says; DriverError if that is invalid."""
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
    return DriverParameters(count, split, where=where)

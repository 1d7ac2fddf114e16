"""What a claim's parameters ask of the fake driver: how many devices, in how many parts.

Source: fake-dra-driver v0.1.2, with its defects mended: whole devices are `split` 0 or absent, and
an absent count is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dralab.api.status import ApiError
from dralab.prototypes.classic.kinds import DRIVER
from dralab.runtime.client import Client, Object
from dralab.runtime.objects import key_of
from dralab.runtime.resources import FAKE_PARAMETERS


class DriverError(Exception):
    """The driver refuses; what it says becomes an event."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many devices of one node, and into how many parts each is split (0: it stays whole)."""

    count: int = 1
    split: int = 0


def parameters_of(client: Client, claim: Object) -> Parameters:
    """Return what a claim asks for; DriverError where its parameters are missing or wrong."""
    reference: Mapping[str, Any] | None = claim["spec"].get("parametersRef")
    if reference is None:
        return Parameters()
    group = reference.get("apiGroup", "")
    if group != DRIVER:
        raise DriverError(f"incorrect API group: {group}")
    if reference["kind"] != "FakeClaimParameters":
        raise DriverError(f"unknown ResourceClaim.ParametersRef.Kind: {reference['kind']}")
    namespace = key_of(claim).namespace
    name = reference["name"]
    where = f'FakeClaim called "{name}" in namespace "{namespace}"'
    try:
        found = client.get(FAKE_PARAMETERS, name, namespace)
    except ApiError as error:
        raise DriverError(f"error getting {where}: {error}") from error
    return checked(found, where)


def checked(found: Object, where: str) -> Parameters:
    """Return what a FakeClaimParameters says; DriverError where it asks for what there is not."""
    spec = found.get("spec") or {}
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
    return Parameters(count, split)

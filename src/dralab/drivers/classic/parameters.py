"""The parameters of a claim and its class for the fake driver, read from a server."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dralab.api.status import ApiError
from dralab.objects.metadata import key_of
from dralab.prototypes.classic.fake import (
    DriverError,
    DriverParameters,
    checked,
    models_of,
    reference_problem,
)
from dralab.runtime.client import Client
from dralab.runtime.resources import FAKE_CLASS_PARAMETERS, FAKE_PARAMETERS
from dralab.values.json_types import JsonDict


def parameters_of(client: Client, claim: JsonDict, class_: JsonDict) -> DriverParameters:
    """Return what a claim of a class asks for.

    DriverError: the parameters of one of them are missing or wrong.
    """
    return replace(_of_claim(client, claim), models=_models_of(client, class_))


def _models_of(client: Client, class_: JsonDict) -> tuple[str, ...]:
    reference: Mapping[str, Any] | None = class_.get("parametersRef")
    if reference is None:
        return ("*",)
    if why := reference_problem(reference, "ResourceClass", "DeviceClassParameters"):
        raise DriverError(why)
    name = reference["name"]
    try:
        return models_of(client.get(FAKE_CLASS_PARAMETERS, name))
    except ApiError as error:
        raise DriverError(f'error getting DeviceClass called "{name}": {error}') from error


def _of_claim(client: Client, claim: JsonDict) -> DriverParameters:
    reference: Mapping[str, Any] | None = claim["spec"].get("parametersRef")
    if reference is None:
        return DriverParameters()
    if why := reference_problem(reference, "ResourceClaim", "FakeClaimParameters"):
        raise DriverError(why)
    namespace = key_of(claim).namespace
    name = reference["name"]
    where = f'FakeClaim called "{name}" in namespace "{namespace}"'
    try:
        found = client.get(FAKE_PARAMETERS, name, namespace)
    except ApiError as error:
        raise DriverError(f"error getting {where}: {error}") from error
    return checked(found, where)

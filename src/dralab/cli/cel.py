"""`dralab cel`: evaluate an expression for one device, in the environment of an API generation."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from dralab.api.yaml_documents import YamlError, single
from dralab.cli._options import arg, opt, options
from dralab.cli._own_generation import named
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.cli.generations import API_NAMES, stdin
from dralab.files.reading import read
from dralab.files.sources import STDIN
from dralab.prototypes.evolution.kinds import API_VERSION as EVOLUTION
from dralab.prototypes.k8srm.kinds import API_VERSION as K8SRM


@click.command(
    epilog="""Example: dralab cel --api k8srm --attributes device.yaml "device.memory >= '10Gi'"

\b
The file holds a device's attributes in the form of its pool:
    k8srm       - {name: memory, quantityValue: 10Gi}
    evolution   - {name: memory, quantity: 10Gi}
    v1          memory: {string: big}
                or a device: {attributes: {…}, capacity: {memory: {value: 40Gi}}}
"""
)
@options
def cel(
    *,
    expression: str = arg(),
    api: str = opt("The API generation of the expression.", API_NAMES, default="v1"),
    attributes: Path | None = opt(
        "A YAML file with the device's attributes.", click.Path(path_type=Path, allow_dash=True)
    ),
    driver: str = opt("The driver of the device."),
    strict: bool = opt("evolution: a missing key is an error, not a default."),
) -> None:
    """Evaluate EXPRESSION for one device and print true or false.

    Exit code 0: true; 1: false; 2: no result.
    """
    try:
        items = None if attributes is None else single(_content(attributes))
    except OSError as error:
        raise UnusableInput(f"{attributes}: {error.strerror}") from None
    except YamlError as error:
        place = f"{attributes}:{error.line}" if error.line else attributes
        raise UnusableInput(f"{place}: {error.message}") from None
    if items is not None and (problem := _problem(api, items, driver)):
        raise UnusableInput(f"{attributes}: {problem}")
    with refusing(ValueError, kind=click.UsageError):
        answer = EVALUATORS[api](expression, items, driver, strict)
    echo("true" if answer else "false")
    sys.exit(0 if answer else 1)


def _content(attributes: Path) -> bytes:
    return stdin() if str(attributes) == STDIN else read(attributes)


def _problem(api: str, items: Any, driver: str) -> str:
    """Return the errors of attributes, as their generation says it of a device in a pool."""
    findings = named(api).read(SAMPLES[api](items, driver or "driver.example.com")).findings
    wrong = [str(each) for each in findings if each.level == "invalid"]
    return wrong[0].replace(PLACE, "") if wrong else ""


def _k8srm_sample(items: Any, driver: str) -> dict[str, Any]:
    pool = {}
    if isinstance(items, dict) and items.keys() <= {"pool", "device", "attributes"}:
        pool = {"attributes": items["pool"]} if items.get("pool") else {}
        items = items.get("device") or items.get("attributes") or []
    spec = {"driver": driver, "devices": [{"name": "d", "attributes": items}], **pool}
    return {"apiVersion": K8SRM, "kind": "DevicePool", "metadata": {"name": "p"}, "spec": spec}


def _evolution_sample(items: Any, driver: str) -> dict[str, Any]:
    devices = [{"name": "d", "attributes": items}]
    spec = {"driverName": driver, "nodeName": "n", "devices": devices}
    return {
        "apiVersion": EVOLUTION,
        "kind": "ResourcePool",
        "metadata": {"name": "p"},
        "spec": spec,
    }


def _v1_sample(items: Any, driver: str) -> dict[str, Any]:
    device = items if _is_device(items) else {"attributes": items}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "n", "pool": pool, "devices": [{**device, "name": "d"}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": spec,
    }


def _is_device(items: Any) -> bool:
    """Return whether a file holds a device of v1, and not its attributes alone."""
    return isinstance(items, dict) and bool(
        DEVICE_FIELDS.intersection(items)
        and not any(
            isinstance(value, dict) and TYPES.issuperset(value) and value
            for value in items.values()
        )
    )


# What an expression of v1 can see of a device.
DEVICE_FIELDS: Final = frozenset({"attributes", "capacity", "allowMultipleAllocations"})
TYPES: Final = frozenset(
    {"string", "int", "bool", "version", "strings", "ints", "bools", "versions"}
)
PLACE: Final = "spec.devices[0]."
SAMPLES: Final[Mapping[str, Callable[[Any, str], dict[str, Any]]]] = {
    "k8srm": _k8srm_sample,
    "evolution": _evolution_sample,
    "v1": _v1_sample,
}


def _k8srm(expression: str, items: Any, driver: str, strict: bool) -> bool:
    from dralab.prototypes.k8srm import reading
    from dralab.prototypes.k8srm.expressions import K8srmExpressions

    if isinstance(items, dict):  # the attributes of a pool and of one of its devices
        listed = [
            *(items.get("pool") or ()),
            *(items.get("device") or items.get("attributes") or ()),
        ]
    else:
        listed = list(items or ())
    return K8srmExpressions().get(expression).value(reading.attributes(listed))


def _evolution(expression: str, items: Any, driver: str, strict: bool) -> bool:
    from dralab.prototypes.evolution.cluster import attribute, qualified
    from dralab.prototypes.evolution.expressions import EvolutionExpressions

    found = {qualified(item["name"], driver): attribute(item) for item in items or ()}
    return EvolutionExpressions(strict=strict).get(expression).value(driver, found)


def _v1(expression: str, items: Any, driver: str, strict: bool) -> bool:
    from dralab.cel import CelError, compile_selector, device_value

    device = items if _is_device(items) else {"attributes": items}
    try:
        return compile_selector(expression).evaluate(
            device_value(
                driver=driver,
                attributes=device.get("attributes"),
                capacity=device.get("capacity"),
                allow_multiple_allocations=device.get("allowMultipleAllocations"),
            )
        )
    except CelError as error:
        raise ValueError(error.message) from None


EVALUATORS = {"k8srm": _k8srm, "evolution": _evolution, "v1": _v1}

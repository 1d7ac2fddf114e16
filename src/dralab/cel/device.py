"""Device selectors: the environment of `device`, and devices as values.

Source: k8s.io/dynamic-resource-allocation `cel`, and the limits of resource.k8s.io.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from dralab.cel import types
from dralab.cel.environment import DeclaredSize, Environment
from dralab.cel.errors import CelError
from dralab.cel.functions import lists
from dralab.cel.library import kubernetes, overloads
from dralab.cel.types import CelType, map_of
from dralab.cel.values import EMPTY_MAP, INT_MAX, INT_MIN, DefaultMap, Map, Quantity
from dralab.values.quantity import QuantityError, int64_scale, parse_any
from dralab.values.records import dataclass
from dralab.values.version import Version

MAX_COST: Final = 1_000_000
MAX_DOMAIN: Final = 63
MAX_ID: Final = 32
MAX_DRIVER: Final = 63
MAX_ENTRIES: Final = 32
MAX_VALUE: Final = 64

OBJECT: Final = CelType("struct", "kubernetes.DRADevice")

Mode = Literal["new", "stored"]
Purpose = Literal["selector", "derived attribute"]

MANY: Final = ("ints", "bools", "strings", "versions")


@dataclass(frozen=True, slots=True, kw_only=True)
class CelFeatures:
    """The feature gates that change what a new expression may use; stored ones may use all."""

    consumable_capacity: bool = True
    list_type_attributes: bool = True


ALL_FEATURES: Final = CelFeatures()


@lru_cache(maxsize=32)
def environment(
    features: CelFeatures = ALL_FEATURES, mode: Mode = "stored", purpose: Purpose = "selector"
) -> Environment:
    """Return the environment of device selectors or of derived attributes."""
    if mode == "stored":
        features = ALL_FEATURES
    attribute = types.DYN if features.list_type_attributes else types.ANY
    base = kubernetes()
    functions = {}
    if features.list_type_attributes:
        functions = dict(overloads(lists.INCLUDES_SIGNATURES))
    fields = {
        "driver": types.STRING,
        "attributes": map_of(types.STRING, map_of(types.STRING, attribute)),
        "capacity": map_of(types.STRING, map_of(types.STRING, types.QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = types.BOOL
    result: tuple[CelType, ...] = (types.BOOL, attribute)
    words = "bool or the unknown type"
    if purpose == "derived attribute":
        scalars = (
            types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER,
        )  # fmt: skip
        result, words = scalars, "a primitive scalar (string, integer, boolean, semver)"
        if features.list_type_attributes:
            result = (*scalars, *map(types.list_of, scalars))
            words += " or a list of these scalars"
    return base.extended(
        variables={"device": OBJECT},
        structs={OBJECT.name: fields},
        functions=functions,
        sizes={"device": _device_size()},
        result=result,
        result_words=words,
    )


def _device_size() -> DeclaredSize:
    domain, name = DeclaredSize(MAX_DOMAIN), DeclaredSize(MAX_ID)
    attributes = DeclaredSize(MAX_ENTRIES, name, DeclaredSize(MAX_VALUE), any_field=True)
    capacity = DeclaredSize(MAX_ENTRIES, name, DeclaredSize(0))
    return DeclaredSize(
        0,
        fields={
            "driver": DeclaredSize(MAX_DRIVER),
            "allowMultipleAllocations": DeclaredSize(1),
            "attributes": DeclaredSize(MAX_ENTRIES, domain, attributes),
            "capacity": DeclaredSize(MAX_ENTRIES, domain, capacity),
        },
    )


def device_value(
    *,
    driver: str,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    capacity: Mapping[str, Any] | None = None,
    allow_multiple_allocations: bool | None = None,
) -> Map:
    """Return a device as selectors see it.

    `attributes` and `capacity` are the mappings of a resource.k8s.io/v1 device; capacities may
    also be given as quantities. Raise CelError if an attribute has no usable value.
    """
    by_domain: dict[str, Map] = {}
    for name, attribute in (attributes or {}).items():
        domain, id_ = qualified(name, driver)
        try:
            value = attribute_value(attribute)
        except CelError as error:
            raise CelError(f"attribute {name}: {error.message}") from None
        by_domain.setdefault(domain, Map())[id_] = value
    capacities: dict[str, Map] = {}
    for name, amount in (capacity or {}).items():
        domain, id_ = qualified(name, driver)
        given = amount.get("value") if isinstance(amount, Mapping) else amount
        try:
            quantity = _quantity(given)
        except QuantityError as error:
            raise CelError(f"capacity {name}: {error}") from None
        capacities.setdefault(domain, Map())[id_] = quantity
    return Map(
        driver=driver,
        allowMultipleAllocations=bool(allow_multiple_allocations),
        attributes=DefaultMap(by_domain, EMPTY_MAP),
        capacity=DefaultMap(capacities, EMPTY_MAP),
    )


def _quantity(given: Any) -> Quantity:
    if isinstance(given, Quantity):
        return given
    return Quantity(parse_any(given), int64_scale(str(given)))


def device_of(device: Mapping[str, Any], driver: str) -> Map:
    """Return a device of a resource.k8s.io/v1 slice as selectors see it."""
    return device_value(
        driver=driver,
        attributes=device.get("attributes"),
        capacity=device.get("capacity"),
        allow_multiple_allocations=device.get("allowMultipleAllocations"),
    )


def qualified(name: str, driver: str) -> tuple[str, str]:
    """Return domain and identifier of a name; without a domain it belongs to the driver's."""
    domain, slash, id_ = name.partition("/")
    return (domain, id_) if slash else (driver, name)


def attribute_value(attribute: Mapping[str, Any]) -> Any:
    """Return the value of an attribute of resource.k8s.io/v1; CelError if it has none."""
    for kind in MANY:
        values = attribute.get(kind)
        if values is not None:
            if not isinstance(values, list):
                raise CelError("unsupported attribute value")
            return [_scalar(kind[:-1], value) for value in values]
    for kind in ("int", "bool", "string", "version"):
        value = attribute.get(kind)
        if value is not None:
            return _scalar(kind, value)
    raise CelError("unsupported attribute value")


def _scalar(kind: str, value: Any) -> Any:
    if kind == "version" and isinstance(value, str):
        try:
            return Version.parse(value)
        except ValueError as error:
            raise CelError(f"parse semantic version: {error}") from None
    wanted = {"int": int, "bool": bool, "string": str}.get(kind)
    if type(value) is not wanted:
        raise CelError("unsupported attribute value")
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise CelError("unsupported attribute value")
    return value

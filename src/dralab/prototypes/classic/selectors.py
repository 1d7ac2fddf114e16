"""Selectors of named resources: CEL over maps of attributes, one map for each type.

Source: k8s.io/dynamic-resource-allocation v0.30 `structured/namedresources/cel`.

>>> accepts('attributes.string["model"] == "A"', [{"name": "model", "string": "A"}])
True
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dralab.allocation.problem import Attribute, Device, DevicePath, DeviceSelectorError
from dralab.cel import (
    CelError,
    CompileError,
    Environment,
    Program,
    compile_expression,
    kubernetes,
    types,
)
from dralab.cel.errors import NoSuchKeyError
from dralab.cel.values import Map, Quantity
from dralab.values.quantity import QuantityError, int64_scale, parse_any
from dralab.values.records import dataclass
from dralab.values.version import Version

# map → (type of its values, field of an attribute)
MAPS: Final[Mapping[str, tuple[types.CelType, str]]] = {
    "quantity": (types.QUANTITY, "quantity"),
    "bool": (types.BOOL, "bool"),
    "int": (types.INT, "int"),
    "intslice": (types.list_of(types.INT), "intSlice"),
    "string": (types.STRING, "string"),
    "stringslice": (types.list_of(types.STRING), "stringSlice"),
    "version": (types.SEMVER, "version"),
}


class ClassicSelectorError(DeviceSelectorError):
    """A selector has no answer for a device."""


@dataclass(frozen=True, slots=True)
class NamedResourceSelector:
    """A selector as a condition of the allocation problem; a failing one ends the search."""

    text: str

    @property
    def reads(self) -> frozenset[DevicePath]:
        """Any attribute may be read."""
        return frozenset({("attributes",)})

    def matches(self, device: Device) -> bool:
        """Return whether a device is accepted. ClassicSelectorError."""
        return accepts(self.text, [_wire(*each) for each in device.attributes.items()])

    def with_text(self, text: str) -> "NamedResourceSelector":
        """Return another selector."""
        return NamedResourceSelector(text)

    def place(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of an attribute: names have no domain, maps are by type."""
        return ("attributes", "", path[1]) if len(path) == 2 and path[0] in MAPS else path


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the environment: Kubernetes' own, and the maps of attributes."""
    return kubernetes().extended(
        variables={
            f"attributes.{name}": types.map_of(types.STRING, value)
            for name, (value, _) in MAPS.items()
        },
        result=(types.BOOL,),
        result_words="bool",
    )


def attribute(wire: Mapping[str, Any]) -> Attribute:
    """Return the typed value of an attribute of a named resource."""
    for field in ("int", "bool", "string", "version"):
        if field in wire:
            return Attribute(field, (wire[field],))
    if "quantity" in wire:
        return Attribute("quantity", (str(wire["quantity"]),))
    if "intSlice" in wire:
        return Attribute("int", tuple(wire["intSlice"]["ints"]), listed=True)
    if "stringSlice" in wire:
        return Attribute("string", tuple(wire["stringSlice"]["strings"]), listed=True)
    return Attribute("", ())


def _wire(name: str, value: Attribute) -> dict[str, Any]:
    if value.listed:
        plural = {"int": "ints", "string": "strings"}[value.type]
        return {"name": name, f"{value.type}Slice": {plural: list(value.values)}}
    return {"name": name} | ({value.type: value.values[0]} if value.type else {})


def problem(selector: str) -> str:
    """Return the problem of a selector; empty if it is valid."""
    found = _compiled(selector)
    return found if isinstance(found, str) else ""


def accepts(selector: str, attributes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a selector accepts a device with these attributes. SelectorError."""
    program = _compiled(selector)
    if isinstance(program, str):
        raise ClassicSelectorError(program)
    variables = {
        f"attributes.{name}": Map(
            {
                attribute["name"]: _value(attribute, field)
                for attribute in attributes
                if attribute.get(field) is not None
            }
        )
        for name, (_, field) in MAPS.items()
    }
    try:
        value, _ = program.value(variables)
    except CelError as error:
        lacks_key = isinstance(error, NoSuchKeyError)
        raise ClassicSelectorError(error.message, lacks_key=lacks_key) from error
    return bool(value)


@lru_cache(maxsize=1024)
def _compiled(selector: str) -> Program | str:
    try:
        return compile_expression(selector, environment())
    except CompileError as error:
        return error.detail


def _value(attribute: Mapping[str, Any], field: str) -> Any:
    value = attribute[field]
    try:
        match field:
            case "quantity":
                return Quantity(parse_any(value), int64_scale(str(value)))
            case "version":
                return Version.parse(value)
            case "intSlice":
                return list(value["ints"])
            case "stringSlice":
                return list(value["strings"])
            case _:
                return value
    except (QuantityError, ValueError) as error:
        raise ClassicSelectorError(f'attribute "{attribute["name"]}": {error}') from error

"""CEL as dra-evolution knows it: `device.driverName` and maps of attributes, one for each type.

A key that a device lacks has the documented default of its map (null, '', false, 0, 0.0.0); with
`strict` it is the error `no such key`, as in the prototype's code. Names are `driver/id`; a bare
id is known only where there is no driver. `id.driver`, which that code wanted, works too.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from dralab.allocation.problem import Attribute, Device, DevicePath
from dralab.cel import (
    CelError,
    CompileError,
    Environment,
    Program,
    compile_expression,
    kubernetes,
)
from dralab.cel import types as cel_types
from dralab.cel.values import DefaultMap, Map, Quantity
from dralab.prototypes.findings import Finding, invalid
from dralab.prototypes.k8srm.expressions import value_of
from dralab.values.records import dataclass
from dralab.values.version import Version

READS: Final[frozenset[DevicePath]] = frozenset({("driver",), ("attributes",)})
MAX_COST: Final = 1_000_000
# map → (type of its values, attribute type, default)
MAPS: Final[Mapping[str, tuple[cel_types.CelType, str, Any]]] = {
    "attributes": (cel_types.DYN, "", None),
    "stringAttributes": (cel_types.STRING, "string", ""),
    "boolAttributes": (cel_types.BOOL, "bool", False),
    "quantityAttributes": (cel_types.QUANTITY, "quantity", Quantity(0)),
    "versionAttributes": (cel_types.SEMVER, "version", Version.parse("0.0.0")),
}


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the environment: Kubernetes' own, and the variables of a device."""
    return kubernetes().extended(
        variables={"device.driverName": cel_types.STRING}
        | {
            f"device.{name}": cel_types.map_of(cel_types.STRING, value)
            for name, (value, _, _) in MAPS.items()
        },
        result=(cel_types.BOOL,),
        result_words="bool",
    )


@dataclass
class EvolutionExpression:
    """One device selector; a device for which it fails is skipped."""

    text: str
    strict: bool
    suffix: str
    failures: dict[str, str]
    compiled: Program | str | None = None
    warned: set[str] = field(default_factory=set)

    @property
    def reads(self) -> frozenset[DevicePath]:
        """The parts of a device that it may read."""
        return READS

    def matches(self, device: Device) -> bool:
        """Return whether it is true for a device; False if it fails, which is recorded."""
        try:
            return self.value(device.driver, device.attributes)
        except ValueError as error:
            self.failures.setdefault(self.text, str(error))
            return False

    def with_text(self, text: str) -> "EvolutionExpression":
        """Return another expression, whose failures are not recorded."""
        return EvolutionExpression(text, self.strict, self.suffix, {})

    def place(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of an attribute, or of the driver."""
        if path == ("driverName",):
            return ("driver",)
        if len(path) != 2 or path[0] not in MAPS:
            return path
        domain, _, name = path[1].rpartition("/")
        return ("attributes", domain, name)

    def value(self, driver: str, attributes: Mapping[str, Attribute]) -> bool:
        """Return its value; ValueError if it has none. Attribute names are qualified."""
        if self.compiled is None:
            try:
                self.compiled = compile_expression(self.text, environment())
            except CompileError as error:
                self.compiled = error.detail
        if isinstance(self.compiled, str):
            raise ValueError(self.compiled)  # noqa: TRY004 - the text of a compile error
        keys = {path[1] for path in self.compiled.paths if len(path) > 1}
        known = self._known(driver, attributes, keys)
        variables: dict[str, Any] = {"device.driverName": driver}
        for name, (_, kind, default) in MAPS.items():
            values = {key: value_of(item) for key, item in known.items() if kind in {"", item.type}}
            variables[f"device.{name}"] = (
                Map(values) if self.strict else DefaultMap(values, default)
            )
        try:
            value, _ = self.compiled.value(variables, MAX_COST)
        except CelError as error:
            raise ValueError(error.message) from None
        return bool(value)

    def _known(
        self, driver: str, attributes: Mapping[str, Attribute], keys: set[str]
    ) -> dict[str, Attribute]:
        """Return attributes by name, and by the old spellings that the expression uses."""
        known = dict(attributes)
        for name, item in attributes.items():
            domain, _, identifier = name.rpartition("/")
            old = f"{identifier}.{driver}"
            if old in keys and driver and domain in {"", driver}:
                known[old] = item
                self.warned.add(old)
            if self.suffix and name.endswith(f".{self.suffix}"):
                known[name.removesuffix(f".{self.suffix}")] = item
            if self.suffix and domain == self.suffix:
                known[identifier] = item
        return known


class EvolutionExpressions:
    """Expressions by text; failures are recorded for explanations."""

    def __init__(self, *, strict: bool = False, suffix: str = "") -> None:
        self.strict = strict
        self.suffix = suffix
        self.failures: dict[str, str] = {}
        self._found: dict[str, EvolutionExpression] = {}

    def get(self, text: str) -> EvolutionExpression:
        """Return an expression; one that does not compile fails when it is asked."""
        found = self._found.get(text)
        if found is None:
            found = EvolutionExpression(text, self.strict, self.suffix, self.failures)
            self._found[text] = found
        return found

    def findings(self, text: str, path: str) -> list[Finding]:
        """Return the findings about a device selector."""
        try:
            compile_expression(text, environment())
        except CompileError as error:
            return [invalid(path, f'"{text}": {error.detail}')]
        return []

"""CEL selectors for devices of the allocation problem.

An expression is evaluated once per distinct projection of a device onto the paths it reads, not
once per device: ten thousand equal GPUs cost one evaluation.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Final

from dralab.allocation.problem import (
    Attribute,
    Device,
    DevicePath,
    DeviceSelector,
    DeviceSelectorError,
)
from dralab.cel import (
    CelError,
    CompiledSelector,
    CompileError,
    Program,
    compile_expression,
    compile_selector,
    device_value,
    environment,
)
from dralab.cel.errors import NoSuchKeyError
from dralab.cel.values import Map, Quantity
from dralab.values.version import Version

# Answers that one selector remembers; beyond it they are forgotten.
MOST_ANSWERS: Final = 100_000
EVERYTHING: Final[frozenset[DevicePath]] = frozenset({()})
ABSENT: Final = "absent"


def value_of(device: Device) -> Map:
    """Return a device as expressions see it; CelError if an attribute has no usable value."""
    return device_value(
        driver=device.driver,
        attributes={name: _wire(attribute) for name, attribute in device.attributes.items()},
        capacity={name: Quantity(item.value) for name, item in device.capacity.items()},
        allow_multiple_allocations=device.shareable,
    )


def _wire(attribute: Attribute) -> dict[str, Any]:
    if attribute.listed:
        return {f"{attribute.type}s": list(attribute.values)}
    return {attribute.type: attribute.values[0]} if attribute.type else {}


class BrokenSelector:
    """An expression that does not compile: it has no answer for any device."""

    def __init__(self, text: str, message: str) -> None:
        self.text = text
        self.message = message
        self.reads: frozenset[DevicePath] = frozenset()

    def matches(self, device: Device) -> bool:  # noqa: ARG002 - the same for all devices
        """Raise SelectorError."""
        raise DeviceSelectorError(self.message, compiling=True)


class CelSelector:
    """A compiled expression, and its answers so far."""

    def __init__(self, compiled: CompiledSelector) -> None:
        self.compiled = compiled
        self.text = compiled.expression
        self.reads = frozenset(compiled.paths)
        self._key = projection(compiled.paths)
        self._answers: dict[Hashable, bool | tuple[str, bool]] = {}

    def matches(self, device: Device) -> bool:
        """Return whether the expression accepts a device; SelectorError if it fails."""
        key = self._key(device)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[key] = self._evaluate(device)
        if isinstance(answer, tuple):
            message, lacks_key = answer
            raise DeviceSelectorError(message, lacks_key=lacks_key)
        return answer

    def _evaluate(self, device: Device) -> bool | tuple[str, bool]:
        try:
            return self.compiled.evaluate(value_of(device))
        except CelError as error:
            return error.message, isinstance(error, NoSuchKeyError)


class CelDerivation:
    """An expression whose value becomes an attribute."""

    def __init__(self, text: str, program: Program | None, problem: str) -> None:
        self.text = text
        self.program = program
        self.problem = problem
        self.reads = (
            EVERYTHING if program is None else frozenset(path[1:] for path in program.paths)
        )

    def value(self, device: Device) -> Attribute:
        """Return the attribute of a device; SelectorError if there is none."""
        if self.program is None:
            raise DeviceSelectorError(self.problem, compiling=True)
        try:
            found, _ = self.program.value({"device": value_of(device)})
        except CelError as error:
            raise DeviceSelectorError(error.message) from error
        if isinstance(found, list):
            parts = [_scalar(item) for item in found]
            if len({part.type for part in parts}) != 1:
                raise DeviceSelectorError(
                    "a derived attribute must be a list of values of one type"
                )
            return Attribute(parts[0].type, tuple(part.values[0] for part in parts), listed=True)
        return _scalar(found)


def _scalar(value: object) -> Attribute:
    if isinstance(value, Version):
        return Attribute("version", (str(value),))
    if isinstance(value, bool):
        return Attribute("bool", (value,))
    if type(value) is int:
        return Attribute("int", (value,))
    if isinstance(value, str):
        return Attribute("string", (str(value),))
    raise DeviceSelectorError("a derived attribute must be a string, integer, boolean or version")


class CelSelectorCompiler:
    """Expressions of resource.k8s.io as stored: all features on, equal texts share one object."""

    def selector(self, text: str) -> DeviceSelector:
        """Return the selector of an expression."""
        return _selector(text)

    def derivation(self, text: str) -> CelDerivation:
        """Return the attribute that an expression computes."""
        return _derivation(text)


@lru_cache(maxsize=4096)
def _selector(text: str) -> DeviceSelector:
    try:
        return CelSelector(compile_selector(text))
    except CompileError as error:
        return BrokenSelector(text, str(error))


@lru_cache(maxsize=4096)
def _derivation(text: str) -> CelDerivation:
    try:
        program = compile_expression(text, environment(purpose="derived attribute"))
    except CompileError as error:
        return CelDerivation(text, None, str(error))
    return CelDerivation(text, program, "")


def projection(paths: tuple[DevicePath, ...]) -> Callable[[Device], Hashable]:
    """Return a function from a device to a key; equal keys, equal values at all paths.

    A device with an unreadable attribute fails in every expression, so that is part of
    the key.
    """
    if all(len(path) == 3 and path[0] == "attributes" for path in paths):
        # What most selectors read, without a call for each path.
        names = [f"{path[1]}/{path[2]}" for path in sorted(paths)]

        def attributes(device: Device) -> Hashable:
            get = device.attributes.get
            return (device.problem, *[get(name) for name in names])

        return attributes
    steps = [_step(path) for path in sorted(paths)]

    def key(device: Device) -> Hashable:
        return (device.problem, *[step(device) for step in steps])

    return key


def _step(path: DevicePath) -> Callable[[Device], Hashable]:
    match path:
        case ("driver",):
            return _driver
        case ("allowMultipleAllocations",):
            return _shareable
        case ("attributes", domain, name):
            full = f"{domain}/{name}"
            return lambda device: device.attributes.get(full)
        case ("capacity", domain, name):
            full = f"{domain}/{name}"

            def capacity(device: Device) -> Hashable:
                found = device.capacity.get(full)
                return ABSENT if found is None else found.value

            return capacity
        case ("attributes", *_):
            return lambda device: tuple(device.attributes.items())
        case ("capacity", *_):
            return lambda device: tuple(
                (name, item.value) for name, item in device.capacity.items()
            )
        case _:
            return lambda device: device


def _driver(device: Device) -> Hashable:
    return device.driver


def _shareable(device: Device) -> Hashable:
    return device.shareable

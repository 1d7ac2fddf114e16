"""Capacities of devices and the request policies of shared ones."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from dralab.api.fields import FieldError, duplicate, forbidden, invalid_value, required, too_many
from dralab.api.resource.features import Features
from dralab.values import quantity

MAX_VALID_VALUES: Final = 10
LARGEST: Final = 2**63 - 1


def capacity_errors(
    capacity: Mapping[str, Any], path: str, *, shared: bool, features: Features
) -> list[FieldError]:
    """Return the errors of one capacity; only a shared device may have a policy."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    path = f"{path}.requestPolicy"
    if not shared:
        return [forbidden(path, "allowMultipleAllocations must be true")]
    values, valid_range = policy.get("validValues"), policy.get("validRange")
    if values and valid_range is not None:
        text = (
            "exactly one policy can be specified, cannot specify "
            '"validValues" and "validRange" at the same time'
        )
        return [forbidden(path, text)]
    fractional = "DRAFractionalCapacityRange" in features
    whole, default = capacity.get("value", "0"), policy.get("default")
    if values:
        if default is None:
            return [required(f"{path}.default", "required when validValues is defined")]
        return list(
            _values_errors(default, whole, values, f"{path}.validValues", fractional=fractional)
        )
    if valid_range is not None:
        if default is None:
            return [required(f"{path}.default", "required when validRange is defined")]
        return _Range(default, whole, valid_range, f"{path}.validRange").errors(
            fractional=fractional
        )
    return []


def _values_errors(
    default: Any, whole: Any, values: Sequence[Any], path: str, *, fractional: bool
) -> Iterator[FieldError]:
    numbers = [quantity.parse_any(value) for value in values]
    for index in range(1, len(numbers)):
        if numbers[index - 1] > numbers[index]:
            yield invalid_value(
                f"{path}[{index}]", _text(values[index]), "values must be sorted in ascending order"
            )
    found_default = False
    if len(values) > MAX_VALID_VALUES:
        yield too_many(path, len(values), MAX_VALID_VALUES)
    else:
        for index, number in enumerate(numbers):
            if number > quantity.parse_any(whole):
                text = f"option is larger than capacity value: {_text(whole)}"
                yield invalid_value(f"{path}[{index}]", _text(values[index]), text)
            found_default = found_default or number == quantity.parse_any(default)
        seen = set()
        for index, number in enumerate(numbers):
            # Without fractional ranges values that round up to the same integer are the same.
            key = number if fractional else -((-number) // 1)
            if key in seen:
                yield duplicate(f"{path}[{index}]", str(key))
            seen.add(key)
    if not found_default:
        text = "default value is not valid according to the requestPolicy"
        yield invalid_value(path, _text(default), text)


class _Range:
    """A range with its bounds as numbers and as the texts in which messages show them."""

    def __init__(self, default: Any, whole: Any, bounds: Mapping[str, Any], path: str) -> None:
        self.path = path
        given = {"default": default, "capacity": whole} | {
            name: bounds[name] for name in ("min", "max", "step") if bounds.get(name) is not None
        }
        self.texts = {name: _text(value) for name, value in given.items()}
        self.numbers = {name: quantity.parse_any(value) for name, value in given.items()}

    def errors(self, *, fractional: bool) -> list[FieldError]:
        """Return the errors of the range."""
        if "min" not in self.numbers:
            return [required(f"{self.path}.min", "required when validRange is defined")]
        found = self._order()
        bounds = [name for name in ("default", "min", "max", "step") if name in self.numbers]
        milli = fractional and any(self.numbers[name].denominator != 1 for name in bounds)
        if milli:
            unsafe = [name for name in bounds if not self._is_milli(name)]
            if unsafe:
                text = "value cannot be represented as a milli value"
                return found + [self._invalid(name, name, text) for name in unsafe]
        return found + (self._step(bounds, milli=milli) if "step" in self.numbers else [])

    def _order(self) -> list[FieldError]:
        numbers, texts = self.numbers, self.texts
        found: list[FieldError] = []
        if numbers["min"] > numbers["capacity"]:
            text = f"min is larger than capacity value: {texts['capacity']}"
            found.append(self._invalid("min", "min", text))
        if numbers["default"] < numbers["min"]:
            text = f"default is less than min: {texts['min']}"
            found.append(self._invalid("default", "default", text))
        if "max" not in numbers:
            return found
        if numbers["min"] > numbers["max"]:
            text = f"min is larger than max: {texts['max']}"
            found.append(self._invalid("max", "min", text))
        if numbers["max"] > numbers["capacity"]:
            text = f"max is larger than capacity value: {texts['capacity']}"
            found.append(self._invalid("max", "max", text))
        if numbers["default"] > numbers["max"]:
            text = f"default is more than max: {texts['max']}"
            found.append(self._invalid("default", "default", text))
        return found

    def _step(self, bounds: Sequence[str], *, milli: bool) -> list[FieldError]:
        numbers, texts = self.numbers, self.texts
        if numbers["step"] <= 0:
            return [self._invalid("step", "step", "must be greater than zero")]
        found: list[FieldError] = []
        one_step = numbers["min"] + numbers["step"]
        if one_step > numbers["capacity"]:
            shown = quantity.render(one_step, quantity.form_of(texts["min"]))
            text = f"one step {shown} is larger than capacity value: {texts['capacity']}"
            found.append(self._invalid("step", "step", text))
        if not milli:
            unsafe = [
                self._invalid(name, name, "must be greater than or equal to 0")
                if numbers[name] < 0
                else self._invalid(name, name, f"must not be larger than {LARGEST}")
                for name in bounds
                if not 0 <= numbers[name] <= LARGEST
            ]
            if unsafe:
                return found + unsafe
        for name in ("default", "max"):
            if name in numbers and not self._on_grid(name, milli=milli):
                text = f"value is not a multiple of a given step ({texts['step']}) from "
                found.append(self._invalid("step", name, f"{text}({texts['min']})"))
        return found

    def _on_grid(self, name: str, *, milli: bool) -> bool:
        scale = 1000 if milli else 1
        value, least, step = (
            -((-self.numbers[part] * scale) // 1) for part in (name, "min", "step")
        )
        return (value - least) % step == 0

    def _is_milli(self, name: str) -> bool:
        number = Fraction(self.numbers[name]) * 1000
        return number.denominator == 1 and abs(number) <= LARGEST

    def _invalid(self, field: str, shown: str, text: str) -> FieldError:
        return invalid_value(f"{self.path}.{field}", self.texts[shown], text)


def _text(value: Any) -> str:
    return quantity.canonical(str(value))

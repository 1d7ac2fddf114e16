"""Binding conditions, which devices have and results copy."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.api.fields import FieldError, duplicate, invalid_value, repeated
from dralab.api.resource.validation.lists import list_errors
from dralab.api.resource.validation.names import label_key_errors

MAX_CONDITIONS: Final = 4


def binding_errors(holder: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return the errors of `bindingConditions` and `bindingFailureConditions`."""
    binding = holder.get("bindingConditions") or ()
    failing = holder.get("bindingFailureConditions") or ()
    if not binding and not failing:
        return []
    first, second = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    found: list[FieldError] = []
    for items, here in ((binding, first), (failing, second)):
        found += list_errors(items, MAX_CONDITIONS, here, label_key_errors)
    met_by = frozenset(binding)
    for items, here in ((binding, first), (failing, second)):
        again = repeated(items)
        for index, item in enumerate(items):
            if index in again:
                found.append(duplicate(f"{here}[{index}]", item))
            if here == second and item in met_by:
                text = "bindingFailureConditions must not overlap with bindingConditions"
                found.append(invalid_value(f"{here}[{index}]", item, text))
    if not binding:
        text = "bindingConditions are required to use bindingFailureConditions"
        found.append(invalid_value(first, None, text))
    if not failing:
        text = "bindingFailureConditions are required to use bindingConditions"
        found.append(invalid_value(second, None, text))
    return found

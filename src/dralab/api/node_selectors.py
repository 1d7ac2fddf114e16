"""Rules of core/v1 NodeSelector, which slices, devices, allocations and pods carry.

Source: k8s.io/kubernetes `pkg/apis/core/validation` (ValidateNodeSelector).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dralab.api.fields import FieldError, forbidden, invalid_value, required
from dralab.values.names import label_value_problems, qualified_problems, subdomain_problems

FIELDS: Final[Mapping[str, Callable[[str], list[str]]]] = {"metadata.name": subdomain_problems}
"""The fields that a node selector may ask for, and what their values must be."""


def node_selector_errors(selector: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return the errors of a node selector."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    found: list[FieldError] = []
    for index, term in enumerate(terms):
        found += term_errors(term, f"{path}.nodeSelectorTerms[{index}]")
    return found


def term_errors(term: Mapping[str, Any], path: str, *, any_value: bool = False) -> list[FieldError]:
    """Return the errors of one term; `any_value` takes values that no label can have."""
    found: list[FieldError] = []
    for number, item in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{number}]"
        found += requirement_errors(item, at, any_value=any_value)
    for number, item in enumerate(term.get("matchFields") or ()):
        found += _field_errors(item, f"{path}.matchFields[{number}]")
    return found


def requirement_errors(
    item: Mapping[str, Any], path: str, *, any_value: bool = False
) -> list[FieldError]:
    """Return the errors of one requirement on a label."""
    found: list[FieldError] = []
    values = item.get("values") or ()
    match item.get("operator"):
        case "In" | "NotIn":
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                found.append(required(f"{path}.values", text))
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(forbidden(f"{path}.values", text))
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                found.append(required(f"{path}.values", text))
        case operator:
            found.append(
                invalid_value(f"{path}.operator", operator or "", "not a valid selector operator")
            )
    key = item.get("key") or ""
    found += [invalid_value(f"{path}.key", key, text) for text in qualified_problems(key)]
    for index, value in enumerate(() if any_value else values):
        found += [
            invalid_value(f"{path}.values[{index}]", value, text)
            for text in label_value_problems(value)
        ]
    return found


def _field_errors(item: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    values = item.get("values") or ()
    operator = item.get("operator") or ""
    if operator not in {"In", "NotIn"}:
        found.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{path}.values", text))
    key = item.get("key") or ""
    problems = FIELDS.get(key)
    if problems is None:
        found.append(invalid_value(f"{path}.key", key, "not a valid field selector key"))
        return found
    for index, value in enumerate(values):
        found += [invalid_value(f"{path}.values[{index}]", value, text) for text in problems(value)]
    return found

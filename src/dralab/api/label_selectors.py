"""Rules of metav1.LabelSelector, which most kinds carry; `values.labels` says what one selects.

Source: k8s.io/apimachinery `pkg/apis/meta/v1/validation` (ValidateLabelSelector).
"""

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.internal_forms import META, versioned_form
from dralab.api.metadata import label_problems
from dralab.values import names
from dralab.values.json_types import JsonDict


def label_selector_problems(selector: JsonDict, path: str) -> list[FieldError]:
    """Return the errors of a metav1.LabelSelector."""
    errors = label_problems(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, item in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = item.get("operator") or "", item.get("values") or []
        if operator in {"In", "NotIn"}:
            if not values:
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(fields.required(f"{at}.values", why))
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(fields.forbidden(f"{at}.values", why))
        else:
            why = "not a valid selector operator"
            errors.append(fields.invalid_value(f"{at}.operator", operator, why))
        key = item.get("key") or ""
        errors += [
            fields.invalid_value(f"{at}.key", key, why) for why in names.qualified_problems(key)
        ]
        errors += [
            fields.invalid_value(f"{at}.values[{number}]", value, why)
            for number, value in enumerate(values)
            for why in names.label_value_problems(value)
        ]
    return errors


def shown_selector(selector: JsonDict | None) -> JsonDict | None:
    """Return a metav1.LabelSelector with its fields in the order in which messages show them."""
    return None if selector is None else versioned_form(META + "LabelSelector", selector)

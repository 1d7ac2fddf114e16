"""The parts of a rule in a schema beside its expression: message, reason, path of the field.

Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`,
`pkg/apiserver/schema/cel` (ValidFieldPath). Expressions are left to the server, which compiles
them where these parts are good.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError

Schema = Mapping[str, Any]

RULES: Final = "x-kubernetes-validations"
REASONS: Final = (
    "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired",
)  # fmt: skip
STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)+)'\]")
ONE_LINE: Final = "must not contain line breaks"
NOT_EMPTY: Final = "must be non-empty if specified"


def rule_form_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield the errors of the parts of the rules directly in a schema."""
    for index, rule in enumerate(schema.get(RULES) or ()):
        if isinstance(rule, Mapping):
            yield from _form_errors(rule, schema, f"{path}.{RULES}[{index}]")


def _form_errors(rule: Mapping[str, Any], schema: Schema, at: str) -> Iterator[FieldError]:
    expression, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not expression:
        yield fields.required(f"{at}.rule", "rule is not specified")
    elif message and not message.strip():
        yield fields.invalid_value(f"{at}.message", message, NOT_EMPTY)
    elif "\n" in message.strip():
        yield fields.invalid_value(f"{at}.message", message, ONE_LINE)
    elif "\n" in expression and not message:
        why = "message must be specified if rule contains line breaks"
        yield fields.required(f"{at}.message", why)
    by_expression = rule.get("messageExpression") or ""
    if by_expression and not by_expression.strip():
        yield fields.required(f"{at}.messageExpression", f"messageExpression {NOT_EMPTY}")
    reason = rule.get("reason")
    if reason is not None and reason not in REASONS:
        yield fields.not_supported(f"{at}.reason", reason, REASONS)
    field, where = rule.get("fieldPath") or "", f"{at}.fieldPath"
    if not field:
        return
    if not field.strip():
        yield fields.invalid_value(where, field, NOT_EMPTY)
    if "\n" in field:
        yield fields.invalid_value(where, field, ONE_LINE)
    if not leads_to_field(field, schema):
        yield fields.invalid_value(where, field, "must be a valid path")


def leads_to_field(path: str, schema: Any) -> bool:
    """Return whether a path, such as `.a['b.c']`, names a field that a schema knows.

    >>> leads_to_field(".a['b']", {"properties": {"a": {"additionalProperties": {}}}})
    True
    """
    position = 0
    while position < len(path):
        step = STEP.match(path, position)
        if step is None or not isinstance(schema, Mapping):
            return False
        position = step.end()
        name = step["name"] or re.sub(r"\\(.)", r"\1", step["quoted"] or "")
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                return False
            schema = properties[name]
        elif isinstance(extra, Mapping):
            schema = extra
        else:
            return False
    return bool(path)

"""Where a pod wants to be: affinity to nodes and pods, and how its like spread."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.parts import label, option, qualified
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.node_selectors import node_selector_errors, term_errors
from dralab.values.json_types import JsonObject

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
INCLUSION: Final = ("Honor", "Ignore")
NO_SELECTOR: Final = "must not be specified when labelSelector is not set"


def affinity(wanted: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the affinity of a pod."""
    errors: list[FieldError] = []
    if (to_nodes := wanted.get("nodeAffinity")) is not None:
        errors += _to_nodes(to_nodes, f"{path}.nodeAffinity")
    for part in ("podAffinity", "podAntiAffinity"):
        if (to_pods := wanted.get(part)) is not None:
            errors += _to_pods(to_pods, f"{path}.{part}")
    return errors


def _to_nodes(wanted: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if (required := wanted.get(REQUIRED)) is not None:
        errors += node_selector_errors(required, f"{path}.{REQUIRED}")
    for index, term in enumerate(wanted.get(PREFERRED) or ()):
        at = f"{path}.{PREFERRED}[{index}]"
        errors += _weight(term, at)
        # A value that no label can have only wins no points.
        errors += term_errors(term.get("preference") or {}, f"{at}.preference", any_value=True)
    return errors


def _weight(term: JsonObject, path: str) -> list[FieldError]:
    weight = term.get("weight") or 0
    if 0 < weight <= 100:
        return []
    return [fields.invalid_value(f"{path}.weight", weight, "must be in the range 1-100")]


def _to_pods(wanted: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, term in enumerate(wanted.get(REQUIRED) or ()):
        errors += _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, weighted in enumerate(wanted.get(PREFERRED) or ()):
        at = f"{path}.{PREFERRED}[{index}]"
        errors += _weight(weighted, at)
        errors += _pod_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return errors


def _pod_term(term: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for part in ("labelSelector", "namespaceSelector"):
        errors += label_selector_problems(term.get(part) or {}, f"{path}.{part}")
    for name in term.get("namespaces") or ():
        errors += label(name, f"{path}.namespace")
    errors += _label_keys(term, path)
    topology = term.get("topologyKey") or ""
    if not topology:
        errors.append(fields.required(f"{path}.topologyKey", "can not be empty"))
    return errors + qualified(topology, f"{path}.topologyKey")


def _label_keys(holder: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with labels whose values the server takes from the pod itself."""
    selector, errors = holder.get("labelSelector"), []
    same, other = holder.get("matchLabelKeys") or (), holder.get("mismatchLabelKeys") or ()
    for part, keys in (("matchLabelKeys", same), ("mismatchLabelKeys", other)):
        if keys and selector is None:
            errors.append(fields.forbidden(f"{path}.{part}", NO_SELECTOR))
        elif keys:
            for index, key in enumerate(keys):
                errors += qualified(key, f"{path}.{part}[{index}]")
    others = frozenset(other)
    if selector is not None and same:
        errors += _asked_twice(selector, same, path)
    return errors + [
        fields.invalid_value(
            f"{path}.matchLabelKeys[{index}]",
            key,
            "exists in both matchLabelKeys and mismatchLabelKeys",
        )
        for index, key in enumerate(same)
        if key in others
    ]


def _asked_twice(selector: JsonObject, keys: Sequence[str], path: str) -> list[FieldError]:
    """Return the keys that the selector asks for, beside what was merged into it."""
    errors, last = [], {key: index for index, key in enumerate(keys)}
    seen = set(selector.get("matchLabels") or ())
    for item in selector.get("matchExpressions") or ():
        key = item.get("key") or ""
        if key in last and key in seen:
            why = "exists in both matchLabelKeys and labelSelector"
            errors.append(fields.invalid_value(f"{path}[{last[key]}]", key, why))
        seen.add(key)
    return errors


def spread(constraints: Sequence[JsonObject], path: str) -> list[FieldError]:
    """Return what is wrong with how pods spread over a topology."""
    errors: list[FieldError] = []
    left = Counter(map(_pair, constraints))
    for index, constraint in enumerate(constraints):
        at, skew = f"{path}[{index}]", constraint.get("maxSkew") or 0
        topology = constraint.get("topologyKey") or ""
        action = constraint.get("whenUnsatisfiable") or ""
        if skew <= 0:
            errors.append(fields.invalid_value(f"{at}.maxSkew", skew, "must be greater than zero"))
        if not topology:
            errors.append(fields.required(f"{at}.topologyKey", "can not be empty"))
        if action not in ACTIONS:
            errors.append(fields.not_supported(f"{at}.whenUnsatisfiable", action, ACTIONS))
        pair = f"{{{topology}, {action}}}"
        left[pair] -= 1
        if left[pair]:  # the same comes again later
            errors.append(fields.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", pair))
        errors += _domains(constraint, action, at)
        for part in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            errors += option(constraint, part, INCLUSION, at)
        errors += _label_keys(constraint, at)
        errors += label_selector_problems(
            constraint.get("labelSelector") or {}, f"{at}.labelSelector"
        )
    return errors


def _pair(constraint: JsonObject) -> str:
    topology = constraint.get("topologyKey") or ""
    return f"{{{topology}, {constraint.get('whenUnsatisfiable') or ''}}}"


def _domains(constraint: JsonObject, action: str, path: str) -> list[FieldError]:
    least, at, errors = constraint.get("minDomains"), f"{path}.minDomains", []
    if least is None:
        return []
    if least <= 0:
        errors.append(fields.invalid_value(at, least, "must be greater than zero"))
    if action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(fields.invalid_value(at, least, why))
    return errors

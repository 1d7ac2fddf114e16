"""Affinity to nodes and pods, and topology spread."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.node_selectors import node_selector_errors, term_errors
from dralab.api.rules import RuleTables, label, qualified
from dralab.values.json_types import JsonObject

NO_SELECTOR: Final = "must not be specified when labelSelector is not set"


REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
RULES: Final = RuleTables(globals(), label_selector_problems, node_selector_errors)
AFFINITY: Final = RULES["validateAffinity"]


def _label_keys(holder: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of labels whose values the server takes from the pod itself."""
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
    """Return the keys that the selector asks for itself, without what was merged into it."""
    errors, last = [], {key: index for index, key in enumerate(keys)}
    seen = set(selector.get("matchLabels") or ())
    for item in selector.get("matchExpressions") or ():
        key = item.get("key") or ""
        if key in last and key in seen:
            why = "exists in both matchLabelKeys and labelSelector"
            errors.append(fields.invalid_value(f"{path}[{last[key]}]", key, why))
        seen.add(key)
    return errors


def _preference(term: JsonObject, path: str) -> list[FieldError]:
    # Values that no label can have only win no points.
    return term_errors(term, path, any_value=True)


def _namespace_of_term(name: str, path: str) -> list[FieldError]:
    # Upstream leaves its place out.
    return label(name, f"{path.rpartition('.')[0]}.namespace")


def _domains_for_some(constraint: JsonObject, path: str) -> list[FieldError]:
    least, action = constraint.get("minDomains"), constraint.get("whenUnsatisfiable") or ""
    if least is None or action == "DoNotSchedule":
        return []
    why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
    return [fields.invalid_value(f"{path}.minDomains", least, why)]


def spread(constraints: Sequence[JsonObject], path: str) -> list[FieldError]:
    """Return the errors of how pods spread over topologies, each named once."""
    errors: list[FieldError] = []
    left = Counter(map(_pair, constraints))
    for index, constraint in enumerate(constraints):
        at, pair = f"{path}[{index}]", _pair(constraint)
        errors += RULES["validateTopologySpreadConstraints"](constraint, at)
        left[pair] -= 1
        if left[pair]:  # the same comes again later
            errors.append(fields.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", pair))
        errors += RULES["validateTopologySpreadConstraints/more"](constraint, at)
    return errors


def _pair(constraint: JsonObject) -> str:
    topology = constraint.get("topologyKey") or ""
    return f"{{{topology}, {constraint.get('whenUnsatisfiable') or ''}}}"

"""Where a pod wants to be: affinity to nodes and pods, and how its like spread."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.node_selectors import node_selector_errors, term_errors
from dralab.api.rules import (
    Ruleset,
    at_least,
    between,
    field,
    items,
    label,
    needs,
    one_of,
    qualified,
)
from dralab.values.json_types import JsonObject

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NO_SELECTOR: Final = "must not be specified when labelSelector is not set"


def label_keys(holder: JsonObject, path: str) -> list[FieldError]:
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


def preference(term: JsonObject, path: str) -> list[FieldError]:
    """A term is good, but for values that no label can have: these only win no points."""
    return term_errors(term, path, any_value=True)


def namespace_of_term(name: str, path: str) -> list[FieldError]:
    """A namespace has a good name; upstream leaves its place out."""
    return label(name, f"{path.rpartition('.')[0]}.namespace")


WEIGHT: Final = field("weight", between(1, 100, "must be in the range 1-100"), absent=0)
TOPOLOGY: Final = (
    needs("topologyKey", why="can not be empty"),
    field("topologyKey", qualified, absent=""),
)
POD_TERM: Final = Ruleset(
    "core.validatePodAffinityTerm",
    field("labelSelector", label_selector_problems),
    field("namespaceSelector", label_selector_problems),
    items("namespaces", namespace_of_term),
    label_keys,
    *TOPOLOGY,
)
TO_NODES: Final = Ruleset(
    "core.validateNodeAffinity",
    field(REQUIRED, node_selector_errors),
    items(
        PREFERRED,
        Ruleset(
            "core.ValidatePreferredSchedulingTerms",
            WEIGHT,
            field("preference", preference, absent={}),
        ),
    ),
)
TO_PODS: Final = Ruleset(
    "core.validatePodAffinity",
    items(REQUIRED, POD_TERM),
    items(
        PREFERRED,
        Ruleset(
            "core.validateWeightedPodAffinityTerms",
            WEIGHT,
            field("podAffinityTerm", POD_TERM, absent={}),
        ),
    ),
)
AFFINITY: Final = Ruleset(
    "core.validateAffinity",
    field("nodeAffinity", TO_NODES),
    field("podAffinity", TO_PODS),
    field("podAntiAffinity", TO_PODS),
)
BEFORE: Final = Ruleset(
    "core.validateTopologySpreadConstraints",
    field("maxSkew", at_least(1, "must be greater than zero"), absent=0),
    needs("topologyKey", why="can not be empty"),
    field("whenUnsatisfiable", one_of("DoNotSchedule", "ScheduleAnyway"), absent=""),
)


def domains(constraint: JsonObject, path: str) -> list[FieldError]:
    """A number of domains is wanted, and of no use where pods are scheduled anyway."""
    least, at, errors = constraint.get("minDomains"), f"{path}.minDomains", []
    action = constraint.get("whenUnsatisfiable") or ""
    if least is None:
        return []
    if least <= 0:
        errors.append(fields.invalid_value(at, least, "must be greater than zero"))
    if action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(fields.invalid_value(at, least, why))
    return errors


AFTER: Final = Ruleset(
    "core.validateTopologySpreadConstraints",
    domains,
    field("nodeAffinityPolicy", one_of("Honor", "Ignore")),
    field("nodeTaintsPolicy", one_of("Honor", "Ignore")),
    label_keys,
    field("labelSelector", label_selector_problems),
)


def spread(constraints: Sequence[JsonObject], path: str) -> list[FieldError]:
    """Return what is wrong with how pods spread over topologies, each named once."""
    errors: list[FieldError] = []
    left = Counter(map(_pair, constraints))
    for index, constraint in enumerate(constraints):
        at, pair = f"{path}[{index}]", _pair(constraint)
        errors += BEFORE(constraint, at)
        left[pair] -= 1
        if left[pair]:  # the same comes again later
            errors.append(fields.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", pair))
        errors += AFTER(constraint, at)
    return errors


def _pair(constraint: JsonObject) -> str:
    topology = constraint.get("topologyKey") or ""
    return f"{{{topology}, {constraint.get('whenUnsatisfiable') or ''}}}"

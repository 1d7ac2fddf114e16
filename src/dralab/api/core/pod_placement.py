"""Where a pod may say that it wants to run: affinity, spreading, and the labels of nodes.

A scheduler reads these of every pod, so a selector that cannot be read must never be stored.
Source: k8s.io/kubernetes `pkg/apis/core/validation` (validateAffinity,
validateTopologySpreadConstraints).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.metadata import label_problems
from dralab.api.node_selectors import node_selector_errors, term_errors
from dralab.values import names
from dralab.values.json_types import JsonDict

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
POLICIES: Final = ("Honor", "Ignore")
LARGEST_WEIGHT: Final = 100


def placement_problems(spec: JsonDict, path: str) -> list[FieldError]:
    """Return what is wrong with where a pod wants to run."""
    errors = label_problems(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    if affinity := spec.get("affinity"):
        errors += _affinity_problems(affinity, f"{path}.affinity")
    if constraints := spec.get("topologySpreadConstraints"):
        errors += _spread_problems(constraints, f"{path}.topologySpreadConstraints")
    return errors


def _affinity_problems(affinity: JsonDict, path: str) -> Iterator[FieldError]:
    if nodes := affinity.get("nodeAffinity"):
        yield from _node_affinity_problems(nodes, f"{path}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        found = affinity.get(kind) or {}
        for index, term in enumerate(found.get(REQUIRED) or ()):
            yield from _pod_term_problems(term, f"{path}.{kind}.{REQUIRED}[{index}]")
        for index, weighted in enumerate(found.get(PREFERRED) or ()):
            at = f"{path}.{kind}.{PREFERRED}[{index}]"
            yield from _weight_problems(weighted, at)
            yield from _pod_term_problems(
                weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm"
            )


def _node_affinity_problems(nodes: JsonDict, path: str) -> Iterator[FieldError]:
    if (required := nodes.get(REQUIRED)) is not None:
        yield from node_selector_errors(required, f"{path}.{REQUIRED}")
    for index, weighted in enumerate(nodes.get(PREFERRED) or ()):
        at = f"{path}.{PREFERRED}[{index}]"
        yield from _weight_problems(weighted, at)
        yield from term_errors(weighted.get("preference") or {}, f"{at}.preference")


def _weight_problems(weighted: JsonDict, path: str) -> Iterator[FieldError]:
    weight = weighted.get("weight") or 0
    if not 1 <= weight <= LARGEST_WEIGHT:
        yield fields.invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _pod_term_problems(term: JsonDict, path: str) -> Iterator[FieldError]:
    for part in ("labelSelector", "namespaceSelector"):
        yield from label_selector_problems(term.get(part) or {}, f"{path}.{part}")
    for name in term.get("namespaces") or ():
        for why in names.label_problems(name):
            yield fields.invalid_value(f"{path}.namespace", name, why)
    key = term.get("topologyKey") or ""
    if not key:
        yield fields.required(f"{path}.topologyKey", "can not be empty")
    for why in names.qualified_problems(key):
        yield fields.invalid_value(f"{path}.topologyKey", key, why)


def _spread_problems(constraints: list[JsonDict], path: str) -> Iterator[FieldError]:
    pairs = [
        (each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints
    ]
    left = Counter(pairs)
    for index, each in enumerate(constraints):
        at = f"{path}[{index}]"
        skew = each.get("maxSkew") or 0
        if skew <= 0:
            yield fields.invalid_value(f"{at}.maxSkew", skew, "must be greater than zero")
        key, when = pairs[index]
        if not key:
            yield fields.required(f"{at}.topologyKey", "can not be empty")
        if when not in UNSATISFIABLE:
            yield fields.not_supported(f"{at}.whenUnsatisfiable", when, UNSATISFIABLE)
        left[key, when] -= 1
        if left[key, when]:
            where = f"{at}.{{topologyKey, whenUnsatisfiable}}"
            yield fields.duplicate(where, f"{{{key}, {when}}}")
        yield from _domain_problems(each, at, when)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if (given := each.get(policy)) is not None and given not in POLICIES:
                yield fields.not_supported(f"{at}.{policy}", given, POLICIES)
        yield from label_selector_problems(each.get("labelSelector") or {}, f"{at}.labelSelector")


def _domain_problems(constraint: JsonDict, path: str, when: str) -> Iterator[FieldError]:
    least = constraint.get("minDomains")
    if least is None:
        return
    if least <= 0:
        yield fields.invalid_value(f"{path}.minDomains", least, "must be greater than zero")
    if when != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
        yield fields.invalid_value(f"{path}.minDomains", least, why)

"""Flow schemas and priority levels: defaults, and what they must be.

Source: k8s.io/kubernetes `pkg/apis/flowcontrol`: `v1/defaults.go` and `validation`.
The mandatory objects (`exempt`, `catch-all`) are kept by the server itself, not refused to change.
"""

import math
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

ANY: Final = "*"
DEFAULT_PRECEDENCE: Final = 1000
MOST_PRECEDENCE: Final = 10_000
DISTINGUISHERS: Final = ("ByNamespace", "ByUser")
VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
)  # fmt: skip
# The field of each kind of subject.
SUBJECTS: Final = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
# The order in which a real server looks for fields of other kinds.
OTHERS: Final = {
    "ServiceAccount": ("User", "Group"),
    "User": ("ServiceAccount", "Group"),
    "Group": ("ServiceAccount", "User"),
}
MOST_QUEUES: Final = 10_000_000
HASH_BITS: Final = 60
QUEUING: Final = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}


class FlowSchemaStrategy(Strategy):
    """Flow schemas."""

    status_keeps = frozenset()

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        spec["matchingPrecedence"] = spec.get("matchingPrecedence") or DEFAULT_PRECEDENCE

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec, errors = value["spec"], []
        precedence, path = spec["matchingPrecedence"], "spec.matchingPrecedence"
        if precedence <= 0:
            errors.append(fields.invalid_value(path, precedence, "must be a positive value"))
        if precedence > MOST_PRECEDENCE:
            why = f"must not be greater than {MOST_PRECEDENCE}"
            errors.append(fields.invalid_value(path, precedence, why))
        if precedence == 1 and value["metadata"].get("name") != "exempt":
            why = "only the schema named 'exempt' may have matchingPrecedence 1"
            errors.append(fields.invalid_value(path, precedence, why))
        method = spec.get("distinguisherMethod")
        if method is not None and method.get("type") not in DISTINGUISHERS:
            shown = {"Type": method.get("type") or ""}
            at = "spec.distinguisherMethod.type"
            errors.append(fields.not_supported(at, shown, DISTINGUISHERS))
        level = (spec.get("priorityLevelConfiguration") or {}).get("name")
        at = "spec.priorityLevelConfiguration.name"
        if level:
            errors += fields.each(at, level, names.subdomain_problems(level))
        else:
            errors.append(fields.required(at, "must reference a priority level"))
        for index, rule in enumerate(spec.get("rules") or ()):
            errors += _rule_errors(rule, f"spec.rules[{index}]")
        return errors


def _rule_errors(rule: JsonObject, path: str) -> list[FieldError]:
    errors = []
    subjects = rule.get("subjects") or ()
    for index, subject in enumerate(subjects):
        errors += _subject_errors(subject, f"{path}.subjects[{index}]")
    if not subjects:
        why = "subjects must contain at least one value"
        errors.append(fields.required(f"{path}.subjects", why))
    resources, others = rule.get("resourceRules") or (), rule.get("nonResourceRules") or ()
    if not resources and not others:
        why = "at least one of resourceRules and nonResourceRules has to be non-empty"
        errors.append(fields.required(path, why))
    for index, part in enumerate(resources):
        errors += _resource_rule_errors(part, f"{path}.resourceRules[{index}]")
    for index, part in enumerate(others):
        errors += _other_rule_errors(part, f"{path}.nonResourceRules[{index}]")
    return errors


def _subject_errors(subject: JsonObject, path: str) -> list[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in SUBJECTS:
        return [fields.not_supported(f"{path}.kind", kind, list(SUBJECTS))]
    field = SUBJECTS[kind]
    at, found, errors = f"{path}.{field}", subject.get(field), []
    if found is None:
        errors.append(fields.required(at, f"{field} is required when subject kind is '{kind}'"))
    else:
        name = found.get("name") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
        elif kind == "ServiceAccount" and name != ANY:
            errors += fields.each(f"{at}.name", name, names.subdomain_problems(name))
        if kind == "ServiceAccount":
            if space := found.get("namespace"):
                errors += fields.each(f"{at}.namespace", space, names.label_problems(space))
            else:
                why = "must specify namespace for service account"
                errors.append(fields.required(f"{at}.namespace", why))
    for other in OTHERS[kind]:
        if subject.get(SUBJECTS[other]) is not None:
            why = f"{SUBJECTS[other]} is forbidden when subject kind is not '{other}'"
            errors.append(fields.forbidden(f"{path}.{SUBJECTS[other]}", why))
    return errors


def _alone(found: Sequence[str], path: str, what: str) -> list[FieldError]:
    """Return an error if `*` is not alone."""
    if ANY not in found or len(found) == 1:
        return []
    return [
        fields.invalid_value(path, list(found), f"if '*' is present, must not specify other {what}")
    ]


def _verb_errors(rule: JsonObject, path: str) -> list[FieldError]:
    verbs = rule.get("verbs") or ()
    if not verbs:
        return [fields.required(path, "verbs must contain at least one value")]
    if ANY not in verbs and not set(verbs) <= set(VERBS):
        return [fields.not_supported(path, list(verbs), VERBS)]
    return _alone(verbs, path, "verbs")


def _resource_rule_errors(rule: JsonObject, path: str) -> list[FieldError]:
    errors = _verb_errors(rule, f"{path}.verbs")
    for field, one, more in (
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ):
        at, found = f"{path}.{field}", rule.get(field) or ()
        if not found:
            errors.append(fields.required(at, f"resource rules must supply at least one {one}"))
        errors += _alone(found, at, more)
    at, spaces = f"{path}.namespaces", rule.get("namespaces") or ()
    if not spaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        errors.append(fields.required(at, why))
    elif ANY in spaces:
        errors += _alone(spaces, at, "namespaces")
    else:
        for index, space in enumerate(spaces):
            begin = "each member of this list must be '*' or a DNS-1123 label; "
            problems = [begin + problem for problem in names.label_problems(space)]
            errors += fields.each(f"{at}[{index}]", space, problems)
    return errors


def _other_rule_errors(rule: JsonObject, path: str) -> list[FieldError]:
    errors = _verb_errors(rule, f"{path}.verbs")
    at, urls = f"{path}.nonResourceURLs", rule.get("nonResourceURLs") or ()
    if not urls:
        errors.append(fields.required(at, "nonResourceURLs must contain at least one value"))
    elif ANY in urls:
        errors += _alone(urls, at, "non-resource URLs")
    else:
        for index, url in enumerate(urls):
            if why := _url_problem(url):
                errors.append(fields.invalid_value(f"{at}[{index}]", url, why))
    return errors


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    for part, why in ((" ", "white-space"), ("//", "double slash")):
        if part in url:
            return f"must not contain {why}"
    wild = url.count(ANY)
    if wild > 1 or (wild and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


class PriorityLevelStrategy(Strategy):
    """Priority levels."""

    status_keeps = frozenset()

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        for part, shares in (("exempt", 0), ("limited", 30)):
            if (found := spec.get(part)) is not None:
                for name, share in (("nominalConcurrencyShares", shares), ("lendablePercent", 0)):
                    if found.get(name) is None:
                        found[name] = share
        queuing = ((spec.get("limited") or {}).get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            for name, number in QUEUING.items():
                queuing[name] = queuing.get(name) or number

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec, errors = value["spec"], []
        kind, exempt, limited = spec.get("type") or "", spec.get("exempt"), spec.get("limited")
        if (value["metadata"].get("name") == "exempt") != (kind == "Exempt"):
            why = "must be 'Exempt' if and only if `name` is 'exempt'"
            errors.append(fields.invalid_value("spec.type", kind, why))
        if kind == "Exempt":
            if limited is not None:
                why = "must be nil if the type is not Limited"
                errors.append(fields.forbidden("spec.limited", why))
            if exempt is not None:
                errors += _share_errors(exempt, "spec.exempt") + _lent_errors(exempt, "spec.exempt")
        elif kind == "Limited":
            if exempt is not None:
                errors.append(fields.forbidden("spec.exempt", "must be nil if the type is Limited"))
            if limited is None:
                why = "must not be empty when type is Limited"
                errors.append(fields.required("spec.limited", why))
            else:
                errors += _limited_errors(limited, "spec.limited")
        else:
            errors.append(fields.not_supported("spec.type", kind, ("Exempt", "Limited")))
        return errors


def _share_errors(part: JsonObject, path: str) -> list[FieldError]:
    shares, at = part.get("nominalConcurrencyShares") or 0, f"{path}.nominalConcurrencyShares"
    if shares >= 0:
        return []
    return [fields.invalid_value(at, shares, "must be a non-negative integer")]


def _lent_errors(part: JsonObject, path: str) -> list[FieldError]:
    percent = part.get("lendablePercent") or 0
    if 0 <= percent <= 100:
        return []
    why = "must be between 0 and 100, inclusive"
    return [fields.invalid_value(f"{path}.lendablePercent", percent, why)]


def _limited_errors(limited: JsonObject, path: str) -> list[FieldError]:
    errors = _share_errors(limited, path)
    response, at = limited.get("limitResponse") or {}, f"{path}.limitResponse"
    kind, queuing = response.get("type") or "", response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            why = "must be nil if limited.limitResponse.type is not Limited"
            errors.append(fields.forbidden(f"{at}.queuing", why))
    elif kind != "Queue":
        errors.append(fields.not_supported(f"{at}.type", kind, ("Queue", "Reject")))
    elif queuing is None:
        why = "must not be empty if limited.limitResponse.type is Limited"
        errors.append(fields.required(f"{at}.queuing", why))
    else:
        errors += _queuing_errors(queuing, f"{at}.queuing")
    errors += _lent_errors(limited, path)
    borrowed = limited.get("borrowingLimitPercent") or 0
    if borrowed < 0:
        why = "if specified, must be a non-negative integer"
        errors.append(fields.invalid_value(f"{path}.borrowingLimitPercent", borrowed, why))
    return errors


def _queuing_errors(queuing: JsonObject, path: str) -> list[FieldError]:
    length, queues, hand = (queuing[name] for name in ("queueLengthLimit", "queues", "handSize"))
    errors, positive = [], "must be positive"
    if length <= 0:
        errors.append(fields.invalid_value(f"{path}.queueLengthLimit", length, positive))
    if queues <= 0:
        errors.append(fields.invalid_value(f"{path}.queues", queues, positive))
    elif queues > MOST_QUEUES:
        why = f"must not be greater than {MOST_QUEUES}"
        errors.append(fields.invalid_value(f"{path}.queues", queues, why))
    if hand <= 0:
        errors.append(fields.invalid_value(f"{path}.handSize", hand, positive))
    elif hand > queues:
        why = f"should not be greater than queues ({queues})"
        errors.append(fields.invalid_value(f"{path}.handSize", hand, why))
    elif math.ceil(math.log2(queues) * hand) > HASH_BITS:
        why = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater "
            f"than {HASH_BITS}"
        )
        errors.append(fields.invalid_value(f"{path}.handSize", hand, why))
    return errors

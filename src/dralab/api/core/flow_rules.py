"""Flow schemas and priority levels: defaults, and their validation.

Source: k8s.io/kubernetes `pkg/apis/flowcontrol`: `v1/defaults.go` and `validation`.
The mandatory objects (`exempt`, `catch-all`) are kept by the server itself, not refused to change.
"""

import math
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

ANY: Final = "*"
DEFAULT_PRECEDENCE: Final = 1000
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
HASH_BITS: Final = 60
WORDS: Final = {
    "apiGroups": "api groups", "resources": "resources", "namespaces": "namespaces",
    "nonResourceURLs": "non-resource URLs", "verbs": "verbs",
}  # fmt: skip
QUEUING: Final = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}


RULES: Final = RuleTables(globals())


class FlowSchemaStrategy(Strategy):
    """Flow schemas."""

    status_keeps = frozenset()
    rules = RULES["ValidateFlowSchema"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        spec["matchingPrecedence"] = spec.get("matchingPrecedence") or DEFAULT_PRECEDENCE


def _distinguisher(method: JsonObject, path: str) -> list[FieldError]:
    if method.get("type") in DISTINGUISHERS:
        return []
    shown = {"Type": method.get("type") or ""}
    return [fields.not_supported(f"{path}.type", shown, DISTINGUISHERS)]


def _account_name(name: str, path: str) -> list[FieldError]:
    return [] if name == ANY else fields.each(path, name, names.subdomain_problems(name))


def _subject(subject: JsonObject, path: str) -> list[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in SUBJECTS:
        return [fields.not_supported(f"{path}.kind", kind, list(SUBJECTS))]
    part = SUBJECTS[kind]
    at, found, errors = f"{path}.{part}", subject.get(part), []
    if found is None:
        errors.append(fields.required(at, f"{part} is required when subject kind is '{kind}'"))
    else:
        account = kind == "ServiceAccount"
        table = "ValidateServiceAccountSubject" if account else "ValidateUserSubject"
        errors += RULES[table](found, at)
    for other in OTHERS[kind]:
        if subject.get(SUBJECTS[other]) is not None:
            why = f"{SUBJECTS[other]} is forbidden when subject kind is not '{other}'"
            errors.append(fields.forbidden(f"{path}.{SUBJECTS[other]}", why))
    return errors


def _alone(found: Sequence[str], path: str) -> list[FieldError]:
    """Return an error if `*` is not alone."""
    if ANY not in found or len(found) == 1:
        return []
    why = f"if '*' is present, must not specify other {WORDS[path.rpartition('.')[2]]}"
    return [fields.invalid_value(path, list(found), why)]


def _verbs(verbs: Sequence[str], path: str) -> list[FieldError]:
    if ANY not in verbs and not set(verbs) <= set(VERBS):
        return [fields.not_supported(path, list(verbs), VERBS)]
    return _alone(verbs, path)


def _namespaces(spaces: Sequence[str], path: str) -> list[FieldError]:
    if ANY in spaces:
        return _alone(spaces, path)
    begin = "each member of this list must be '*' or a DNS-1123 label; "
    return [
        fields.invalid_value(f"{path}[{index}]", space, begin + why)
        for index, space in enumerate(spaces)
        for why in names.label_problems(space)
    ]


def _urls(urls: Sequence[str], path: str) -> list[FieldError]:
    if ANY in urls:
        return _alone(urls, path)
    return [
        fields.invalid_value(f"{path}[{index}]", url, why)
        for index, url in enumerate(urls)
        if (why := _url_problem(url))
    ]


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
    rules = RULES["ValidatePriorityLevelConfiguration"]

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


def _of_type(spec: JsonObject, path: str) -> list[FieldError]:
    kind = spec.get("type")
    part, table = {
        "Exempt": ("exempt", "validateExemptPriorityLevelConfiguration"),
        "Limited": ("limited", "ValidateLimitedPriorityLevelConfiguration"),
    }.get(kind or "", ("", ""))
    found = spec.get(part)
    return [] if found is None else RULES[table](found, f"{path}.{part}")


def _queuing(response: JsonObject, path: str) -> list[FieldError]:
    queuing = response.get("queuing")
    if queuing is None or response.get("type") != "Queue":
        return []
    return RULES["ValidatePriorityLevelQueuingConfiguration"](queuing, f"{path}.queuing")


def _hand(queuing: JsonObject, path: str) -> list[FieldError]:
    queues, hand = queuing["queues"], queuing["handSize"]
    if hand <= 0:
        return []
    if hand > queues:
        why = f"should not be greater than queues ({queues})"
    elif math.ceil(math.log2(queues) * hand) > HASH_BITS:
        why = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater "
            f"than {HASH_BITS}"
        )
    else:
        return []
    return [fields.invalid_value(f"{path}.handSize", hand, why)]

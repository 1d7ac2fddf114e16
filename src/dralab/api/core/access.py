"""Roles and bindings: what they must be.

Source: k8s.io/kubernetes `pkg/apis/rbac/validation`, `pkg/apis/rbac/v1` (defaults).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.resource.features import IMMUTABLE_ROLE_REFERENCES, Features
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict
from dralab.values.names import subdomain_problems

RBAC: Final = "rbac.authorization.k8s.io"
ACCOUNT: Final = "ServiceAccount"
SUBJECTS: Final = (ACCOUNT, "User", "Group")
OF_RESOURCES: Final = ("apiGroups", "resources", "resourceNames")


def any_name(name: str) -> list[str]:
    """Return why a name cannot be a part of a path; RBAC asks for no more."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{bad}'" for bad in ("/", "%") if bad in name]


class RoleStrategy(Strategy):
    """Roles (`namespaced`) and cluster roles."""

    creates_on_update = True

    def __init__(self, *, namespaced: bool) -> None:
        self.namespaced = namespaced

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the rules."""
        errors: list[FieldError] = []
        for index, rule in enumerate(value.get("rules") or ()):
            errors += self._rule_errors(rule, f"rules[{index}]")
        if (aggregation := value.get("aggregationRule")) is not None:
            path, selectors = (
                "aggregationRule.clusterRoleSelectors",
                aggregation.get("clusterRoleSelectors"),
            )
            if not selectors:
                why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
                errors.append(fields.required(path, why))
            for index, selector in enumerate(selectors or ()):
                errors += label_selector_problems(selector, f"{path}[{index}]")
        return errors

    def _rule_errors(self, rule: Mapping[str, Any], path: str) -> list[FieldError]:
        errors = []
        if not rule.get("verbs"):
            why = "verbs must contain at least one value"
            errors.append(fields.required(f"{path}.verbs", why))
        if urls := rule.get("nonResourceURLs"):
            if self.namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                errors.append(fields.invalid_value(f"{path}.nonResourceURLs", urls, why))
            if any(rule.get(part) for part in OF_RESOURCES):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                errors.append(fields.invalid_value(f"{path}.nonResourceURLs", urls, why))
            return errors
        if not rule.get("apiGroups"):
            why = "resource rules must supply at least one api group"
            errors.append(fields.required(f"{path}.apiGroups", why))
        if not rule.get("resources"):
            why = "resource rules must supply at least one resource"
            errors.append(fields.required(f"{path}.resources", why))
        return errors

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none."""
        return any_name(name)


class BindingStrategy(Strategy):
    """Role bindings (`namespaced`) and cluster role bindings: what they bind to stays."""

    creates_on_update = True

    def __init__(self, features: Features, *, namespaced: bool) -> None:
        self.features = features
        self.namespaced = namespaced

    def default(self, value: JsonDict) -> None:
        """Fill in the groups of references."""
        reference = value.setdefault("roleRef", {})
        reference["apiGroup"] = reference.get("apiGroup") or RBAC
        for subject in value.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in {"User", "Group"}:
                subject["apiGroup"] = RBAC

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the references."""
        reference = value["roleRef"]
        errors = _group_errors(reference, "roleRef")
        kinds = ["Role", "ClusterRole"] if self.namespaced else ["ClusterRole"]
        if reference.get("kind") not in kinds:
            kind = reference.get("kind") or ""
            errors.append(fields.not_supported("roleRef.kind", kind, kinds, ordered=True))
        if not (name := reference.get("name")):
            errors.append(fields.required("roleRef.name"))
        else:
            whys = any_name(name)
            errors += [fields.invalid_value("roleRef.name", name, why) for why in whys]
        for index, subject in enumerate(value.get("subjects") or ()):
            errors += self._subject_errors(subject, f"subjects[{index}]")
        return errors

    def _subject_errors(self, subject: Mapping[str, Any], path: str) -> list[FieldError]:
        errors = []
        kind, name = subject.get("kind") or "", subject.get("name") or ""
        if not name:
            errors.append(fields.required(f"{path}.name"))
        if kind == ACCOUNT:
            whys = subdomain_problems(name) if name else ()
            errors += [fields.invalid_value(f"{path}.name", name, why) for why in whys]
            if group := subject.get("apiGroup"):
                errors.append(fields.not_supported(f"{path}.apiGroup", group, [""]))
            if not self.namespaced and not subject.get("namespace"):
                errors.append(fields.required(f"{path}.namespace"))
        elif kind in SUBJECTS:
            errors += _group_errors(subject, path)
        else:
            known = ("ServiceAccount", "User", "Group")
            errors.append(fields.not_supported(f"{path}.kind", kind, known, ordered=True))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        errors = self.validate(new)
        if new["roleRef"] != old.get("roleRef"):
            # By the names that the fields have in Go.
            names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
            shown = {name: new["roleRef"].get(part, "") for name, part in names.items()}
            newer = IMMUTABLE_ROLE_REFERENCES in self.features
            why = "field is immutable" if newer else "cannot change roleRef"
            errors.append(fields.invalid_value("roleRef", shown, why))
        return errors

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none."""
        return any_name(name)


def _group_errors(reference: Mapping[str, Any], path: str) -> list[FieldError]:
    group = reference.get("apiGroup") or ""
    known: Sequence[str] = [RBAC]
    return [] if group == RBAC else [fields.not_supported(f"{path}.apiGroup", group, known)]

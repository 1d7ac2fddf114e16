"""Validation of Roles and bindings.

Source: k8s.io/kubernetes `pkg/apis/rbac/validation`, `pkg/apis/rbac/v1` (defaults).
"""

from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.resource.features import IMMUTABLE_ROLE_REFERENCES, Features
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict

RBAC: Final = "rbac.authorization.k8s.io"
ACCOUNT: Final = "ServiceAccount"
SUBJECTS: Final = (ACCOUNT, "User", "Group")


def any_name(name: str) -> list[str]:
    """Return the problems of a name as a path segment; RBAC requires nothing else."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{bad}'" for bad in ("/", "%") if bad in name]


RULES: Final = RuleTables(globals(), label_selector_problems)


class RoleStrategy(Strategy):
    """Roles (`namespaced`) and cluster roles."""

    creates_on_update = True

    def __init__(self, *, namespaced: bool) -> None:
        self.rules = RULES["ValidateRole" if namespaced else "ValidateClusterRole"]

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name."""
        return any_name(name)


def _subject(subject: JsonDict, path: str) -> list[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in SUBJECTS:
        return [fields.not_supported(f"{path}.kind", kind, SUBJECTS, ordered=True)]
    return RULES["serviceAccount" if kind == ACCOUNT else "reference"](subject, path)


def _in_go(reference: JsonDict) -> JsonDict:
    """Return a reference by the names that its fields have in Go."""
    names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
    return {name: reference.get(part, "") for name, part in names.items()}


class BindingStrategy(Strategy):
    """Role bindings (`namespaced`) and cluster role bindings: what they bind to stays."""

    creates_on_update = True

    def __init__(self, features: Features, *, namespaced: bool) -> None:
        function = f"Validate{'' if namespaced else 'Cluster'}RoleBinding"
        newer = "/1.37" if IMMUTABLE_ROLE_REFERENCES in features else ""
        self.rules, self.change_rules = RULES[function], RULES[f"{function}Update{newer}"]

    def default(self, value: JsonDict) -> None:
        """Fill in the groups of references."""
        reference = value.setdefault("roleRef", {})
        reference["apiGroup"] = reference.get("apiGroup") or RBAC
        for subject in value.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in {"User", "Group"}:
                subject["apiGroup"] = RBAC

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name."""
        return any_name(name)

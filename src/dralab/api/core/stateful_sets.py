"""Stateful sets.

Source: k8s.io/kubernetes `pkg/apis/apps/validation`.
"""

from typing import Final

from dralab.api import fields
from dralab.api.core.statuses import COLLISIONS, replica_errors
from dralab.api.core.volumes import claim_spec_errors
from dralab.api.core.workloads import TemplateStrategy
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables, label
from dralab.values import names
from dralab.values.json_types import JsonDict

ALL_REVISIONS: Final = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is "
    "recommended"
)
STATEFUL_COUNTS: Final = (
    "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
    "observedGeneration", COLLISIONS,
)  # fmt: skip


RULES: Final = RuleTables(globals())


class StatefulSetStrategy(TemplateStrategy):
    """Stateful sets."""

    called = "statefulset"
    template_in = "StatefulSet"
    unreadable = ""
    first = RULES["ValidateStatefulSetSpec"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        super().default(value)
        spec = value["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        policy = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        policy.setdefault("whenDeleted", "Retain")
        policy.setdefault("whenScaled", "Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("kind", "PersistentVolumeClaim")
            claim.setdefault("apiVersion", "v1")
            claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
            claim["status"] = {"phase": "Pending"}

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin with no replicas."""
        value["status"] = {"replicas": 0, "availableReplicas": 0}
        _drop_most_unavailable(value)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop what a gate is off for."""
        _drop_most_unavailable(new)

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return the errors of the spec; pods mount the claims made for them by name."""
        spec = value["spec"]
        names_of = [
            (claim.get("metadata") or {}).get("name", "")
            for claim in spec.get("volumeClaimTemplates") or ()
        ]
        made = {
            name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names_of
        }
        template = spec.get("template") or {}
        inside: JsonDict = template.get("spec") or {}
        if not made and not inside.get("subdomain") and not inside.get("hostname"):
            return super().validate(value, old)
        own = [each for each in inside.get("volumes") or () if each.get("name", "") not in made]
        # The controller says how pods are called.
        inside = {part: inside[part] for part in inside if part not in {"subdomain", "hostname"}}
        if made:
            inside["volumes"] = [*made.values(), *own]
        seen = {**spec, "template": {**template, "spec": inside}}
        return super().validate({**value, "spec": seen}, old)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return the warnings about the template, and about a limit below zero."""
        found = super().warnings(value, old)
        if (value["spec"].get("revisionHistoryLimit") or 0) < 0:
            found.append(ALL_REVISIONS)
        return found

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the counts of replicas."""
        return replica_errors(
            new, old, STATEFUL_COUNTS, STATEFUL_COUNTS[1:5], ready="status.readyReplicas"
        )

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: few fields may be changed."""
        errors = self.validate(new, old)
        before, after = old["spec"], new["spec"]
        if any(before.get(part) != after.get(part) for part in {*before, *after} - MAY_CHANGE):
            errors.append(fields.forbidden("spec", FEW_CHANGE))
        return errors

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name: it becomes a part of host names."""
        return names.label_problems(name)


MAY_CHANGE: Final = frozenset(
    {
        "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
    }
)  # fmt: skip
FEW_CHANGE: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def _drop_most_unavailable(value: JsonDict) -> None:
    """Drop the field of MaxUnavailableStatefulSet, which is off by default."""
    rolling = (value["spec"].get("updateStrategy") or {}).get("rollingUpdate")
    if rolling:
        rolling.pop("maxUnavailable", None)


def _new_claims(spec: JsonDict, path: str, old: JsonDict | None) -> list[FieldError]:
    claims = (old is None and spec.get("volumeClaimTemplates")) or ()
    return [
        error
        for index, claim in enumerate(claims)
        for error in claim_spec_errors(
            claim.get("spec") or {}, f"{path}.volumeClaimTemplates[{index}].spec"
        )
    ]


def _new_service(spec: JsonDict, path: str, old: JsonDict | None) -> list[FieldError]:
    service = (old is None and spec.get("serviceName")) or ""
    return label(service, f"{path}.serviceName") if service else []


def _strategy(strategy: JsonDict, path: str) -> list[FieldError]:
    kind, rolling, at = strategy.get("type"), strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if kind == "RollingUpdate":
        return RULES["validateRollingUpdateStatefulSet"](rolling or {}, at)
    if kind != "OnDelete":
        why = "must be 'RollingUpdate' or 'OnDelete'"
        return [fields.invalid_value(path, _stateful_in_go(strategy), why)]
    if rolling is None:
        return []
    why = "only allowed for updateStrategy 'RollingUpdate'"
    return [fields.invalid_value(at, _stateful_in_go(strategy)["RollingUpdate"], why)]


def _stateful_in_go(strategy: JsonDict) -> JsonDict:
    """Return a strategy by the names that its fields have in Go."""
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        rolling = {
            "Partition": rolling.get("partition", 0),
            "MaxUnavailable": rolling.get("maxUnavailable"),
        }
    return {"Type": strategy.get("type", ""), "RollingUpdate": rolling}

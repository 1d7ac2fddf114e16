"""Which parts of a pod may change after its creation; ephemeral containers are only added.

Source: k8s.io/kubernetes `pkg/apis/core/validation` (ValidatePodUpdate,
ValidatePodEphemeralContainersUpdate).
"""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import MIRROR
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonDict, JsonObject

IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def pod_update_problems(new: JsonDict, old: JsonDict) -> list[FieldError]:
    """Return what a change of a pod's spec may not do."""
    if new == old:
        return []
    errors: list[FieldError] = []
    before, after = dict(old), dict(new)
    for kind in ("containers", "initContainers"):
        had, has = before.pop(kind, None) or (), after.pop(kind, None) or ()
        if len(had) != len(has):
            why = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{kind}", why)]
        if [_without_image(each) for each in had] != [_without_image(each) for each in has]:
            return [fields.forbidden("spec", IMMUTABLE)]
    had, has = before.pop("tolerations", None) or [], after.pop("tolerations", None) or []
    if any(each not in has for each in had):
        why = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(fields.forbidden("spec.tolerations", why))
    errors += _deadline(before, after)
    if (
        before.get("terminationGracePeriodSeconds", 0) < 0
        and after.get("terminationGracePeriodSeconds") == 1
    ):
        before.pop("terminationGracePeriodSeconds")
        after.pop("terminationGracePeriodSeconds")
    errors += _gates(before, after)
    if before != after:
        return [fields.forbidden("spec", IMMUTABLE)]
    return errors


def _without_image(container: JsonDict) -> JsonDict:
    return {key: value for key, value in container.items() if key != "image"}


def _deadline(before: JsonDict, after: JsonDict) -> list[FieldError]:
    had, has = before.pop("activeDeadlineSeconds", None), after.pop("activeDeadlineSeconds", None)
    if had is None or (has is not None and has <= had):
        return []
    why = "must be less than or equal to previous value"
    return [fields.invalid_value("spec.activeDeadlineSeconds", has, why)]


def _gates(before: JsonDict, after: JsonDict) -> list[FieldError]:
    """Gates may only be removed; while some remain, scheduling constraints may be narrowed."""
    had, has = before.pop("schedulingGates", None) or [], after.pop("schedulingGates", None) or []
    if had:
        for name in ("nodeSelector", "affinity"):
            before.pop(name, None)
            after.pop(name, None)
    if not (added := [each for each in has if each not in had]):
        return []
    why = "only deletion is allowed, but found new scheduling gates"
    shown = ", ".join(f"'{each.get('name', '')}'" for each in added)
    return [fields.forbidden("spec.schedulingGates", f"{why} {shown}")]


def ephemeral_problems(
    new: JsonObject, old: JsonObject, errors: Sequence[FieldError]
) -> list[FieldError]:
    """Return `errors` of the new pod, and which ephemeral containers were changed or removed."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [fields.forbidden("[]", "static pods do not support ephemeral containers")]
    after = {each.get("name"): each for each in new["spec"].get("ephemeralContainers") or ()}
    path, found = "spec.ephemeralContainers", list(errors)
    for each in old["spec"].get("ephemeralContainers") or ():
        name = each.get("name")
        if after.get(name) != each:
            done = "changed" if name in after else "removed"
            why = f'existing ephemeral containers "{name}" may not be {done}\n'
            found.append(fields.forbidden(path, why))
    return found

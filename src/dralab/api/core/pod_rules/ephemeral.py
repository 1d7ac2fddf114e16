"""Changes of a pod's ephemeral containers: they are added, and stay as they are.

Source: k8s.io/kubernetes `pkg/apis/core/validation` (ValidatePodEphemeralContainersUpdate).
"""

from collections.abc import Sequence

from dralab.api import fields
from dralab.api.core.pod_rules.facts import MIRROR
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject


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

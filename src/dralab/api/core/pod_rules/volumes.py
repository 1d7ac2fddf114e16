"""The volumes of a pod."""

from collections.abc import Mapping, Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.parts import mode
from dralab.api.core.pod_rules.projections import KEY_FILE, field_files, projected
from dralab.api.core.volume_sources import SOURCES
from dralab.api.core.volumes import claim_spec_errors
from dralab.api.fields import FieldError
from dralab.api.metadata import template_problems
from dralab.api.rules import RuleTables
from dralab.values import names
from dralab.values.json_types import JsonObject

MOST_WITH_INITIATOR: Final = 64
# In the order in which the server looks for them: the first one found is judged.
ORDER: Final = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret",
    "nfs", "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs",
    "quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume",
    "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
    "csi", "ephemeral", "image",
)  # fmt: skip
# Where upstream calls a source something else: as what is judged, and as one too many.
JUDGED_AS: Final = {"gcePersistentDisk": "persistentDisk"}
TOO_MANY_AS: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}


RULES: Final = RuleTables(
    globals(), KEY_FILE, SOURCES, claim_spec_errors, field_files, mode, projected, template_problems
)


def volumes(
    spec: JsonObject, path: str, pod_name: str | None
) -> tuple[Mapping[str, JsonObject], list[FieldError]]:
    """Return the valid volumes of a pod by name, and the errors of the others.

    A template has no `pod_name`, and a pod that is yet to get one has none, either.
    """
    given: Sequence[JsonObject] = spec.get("volumes") or ()
    made = {
        f"{pod_name}-{volume.get('name') or ''}"
        for volume in given
        if pod_name and volume.get("ephemeral") is not None
    }
    good: dict[str, JsonObject] = {}
    errors: list[FieldError] = []
    for index, volume in enumerate(given):
        at, name = f"{path}.volumes[{index}]", volume.get("name") or ""
        found = _volume(volume, name, at, pod_name)
        found += RULES["ValidateVolumes"](volume, at)
        if name in good:
            found.append(fields.duplicate(f"{at}.name", name))
        if not found:
            good[name] = volume
        errors += found
        used = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if used is not None and used in made:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(fields.invalid_value(f"{at}.persistentVolumeClaim.claimName", used, why))
    return good, errors


def _volume(volume: JsonObject, name: str, path: str, pod_name: str | None) -> list[FieldError]:
    given = [kind for kind in ORDER if volume.get(kind) is not None]
    if not given:
        return [fields.required(path, "must specify a volume type")]
    errors: list[FieldError] = []
    for number, kind in enumerate(given):
        if number:
            at = f"{path}.{TOO_MANY_AS.get(kind, kind)}"
            errors.append(fields.forbidden(at, "may not specify more than 1 volume type"))
        else:
            at = f"{path}.{JUDGED_AS.get(kind, kind)}"
            if kind == "image" and pod_name is not None and not volume[kind].get("reference"):
                errors.append(fields.required(f"{at}.reference"))
            errors += RULES["validateVolumeSource"].checks[kind](volume[kind], at)
            if kind == "ephemeral" and pod_name and name:
                errors += _claim_name(f"{pod_name}-{name}", name, path)
        if kind == "iscsi":
            errors += _initiator(volume[kind], name, path)
    return errors


def _claim_name(claim: str, name: str, path: str) -> list[FieldError]:
    problems = [f'PVC name "{claim}": {why}' for why in names.subdomain_problems(claim)]
    return fields.each(f"{path}.name", name, problems)


def _initiator(source: JsonObject, name: str, path: str) -> list[FieldError]:
    whole = f"{name}:{source.get('targetPortal') or ''}"
    if source.get("initiatorName") is None or len(whole) <= MOST_WITH_INITIATOR:
        return []
    why = (
        "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
        "iscsi.initiatorName is specified."
    )
    return [fields.invalid_value(f"{path}.name", name, why)]

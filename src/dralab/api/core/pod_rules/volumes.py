"""The volumes of a pod."""

from collections.abc import Mapping, Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import each
from dralab.api.core.pod_rules.parts import label, mode, option
from dralab.api.core.pod_rules.projections import downward_items, key_items, projected
from dralab.api.core.volume_sources import SOURCES, missing
from dralab.api.core.volumes import claim_spec_errors
from dralab.api.fields import FieldError
from dralab.api.metadata import template_problems
from dralab.values import names, quantity
from dralab.values.json_types import JsonObject

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
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


def volumes(
    spec: JsonObject, path: str, pod_name: str | None
) -> tuple[Mapping[str, JsonObject], list[FieldError]]:
    """Return the good volumes of a pod by name, and what is wrong with the others.

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
        found += label(name, f"{at}.name") if name else [fields.required(f"{at}.name")]
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
            errors += _source(kind, volume[kind], f"{path}.{JUDGED_AS.get(kind, kind)}", pod_name)
            if kind == "ephemeral" and pod_name and name:
                errors += _claim_name(f"{pod_name}-{name}", name, path)
        if kind == "iscsi":
            errors += _initiator(volume[kind], name, path)
    return errors


def _source(kind: str, source: JsonObject, path: str, pod_name: str | None) -> list[FieldError]:
    if kind in SOURCES:
        return SOURCES[kind](source, path)
    if kind == "emptyDir":
        size = source.get("sizeLimit")
        if size is None or quantity.parse(size) >= 0:
            return []
        why = "SizeLimit field must be a valid resource quantity"
        return [fields.forbidden(f"{path}.sizeLimit", why)]
    if kind == "ephemeral":
        return _ephemeral(source, path)
    if kind == "image":
        errors = missing(source, path, "reference") if pod_name is not None else []
        policy = source.get("pullPolicy")
        if not policy:
            return [*errors, fields.required(f"{path}.pullPolicy")]
        return errors + option(source, "pullPolicy", PULL_POLICIES, path)
    if kind == "projected":
        return mode(source, "defaultMode", path) + projected(source, path)
    if kind == "downwardAPI":
        return mode(source, "defaultMode", path) + downward_items(source, path)
    called = "secretName" if kind == "secret" else "name"
    errors = missing(source, path, called) + mode(source, "defaultMode", path)
    return errors + key_items(source, path)


def _ephemeral(source: JsonObject, path: str) -> list[FieldError]:
    template, at = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if template is None:
        return [fields.required(at)]
    errors = template_problems(template.get("metadata") or {}, f"{at}.metadata")
    return errors + claim_spec_errors(template.get("spec") or {}, f"{at}.spec")


def _claim_name(claim: str, name: str, path: str) -> list[FieldError]:
    problems = [f'PVC name "{claim}": {why}' for why in names.subdomain_problems(claim)]
    return each(f"{path}.name", name, problems)


def _initiator(source: JsonObject, name: str, path: str) -> list[FieldError]:
    whole = f"{name}:{source.get('targetPortal') or ''}"
    if source.get("initiatorName") is None or len(whole) <= MOST_WITH_INITIATOR:
        return []
    why = (
        "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
        "iscsi.initiatorName is specified."
    )
    return [fields.invalid_value(f"{path}.name", name, why)]

"""The kinds of storage.k8s.io: classes, drivers, and their data about nodes.

Source: k8s.io/kubernetes `pkg/apis/storage/validation`, `pkg/apis/storage/v1` (defaults).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import csi_driver_errors
from dralab.api.core.volumes import volume_spec_errors
from dralab.api.fields import FieldError, duplicates
from dralab.api.internal_forms import internal_form
from dralab.api.label_selectors import label_selector_problems, shown_selector
from dralab.api.resource.features import DEFAULT_1_36, LIMIT_SCALING, Features
from dralab.api.rules import RuleTables, qualified, subdomain
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict, JsonObject

MOST_PARAMETERS: Final = 512
LARGEST_PARAMETERS: Final = 256 * 1024  # bytes
LIFE_CYCLES: Final = ["Persistent", "Ephemeral"]
PROTECTION: Final = "kubernetes.io/vac-protection"
CSI_DRIVER: Final = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}


RULES: Final = RuleTables(
    globals(),
    csi_driver_errors,
    duplicates,
    label_selector_problems,
    shown_selector,
    subdomain,
)
_shown_attachment = partial(internal_form, "storage.VolumeAttachmentSpec")


def _lower_qualified(name: str, path: str) -> list[FieldError]:
    return qualified(name.lower(), path)


def _size_of_parameters(parameters: Mapping[str, str], path: str) -> list[FieldError]:
    if len(parameters) > MOST_PARAMETERS:
        return [fields.too_long(path, MOST_PARAMETERS)]
    errors = []
    if "" in parameters:
        errors.append(fields.invalid_value(path, "", "field can not be empty."))
    if sum(len(key) + len(text) for key, text in parameters.items()) > LARGEST_PARAMETERS:
        errors.append(fields.too_long(path, LARGEST_PARAMETERS))
    return errors


def _distinct_terms(terms: Sequence[JsonObject], path: str) -> list[FieldError]:
    # Upstream compares each with the terms before it, and with as many empty ones.
    seen: list[dict[str, frozenset[str]]] = [{} for _ in terms]
    errors = []
    for index, term in enumerate(terms):
        at = f"{path}[{index}]"
        errors += RULES["ValidateTopologySelectorTerm"](term, at)
        wanted = {
            item.get("key") or "": frozenset(item.get("values") or ())
            for item in term.get("matchLabelExpressions") or ()
        }
        errors += [fields.duplicate(f"{at}.matchLabelExpressions", "")] * seen.count(wanted)
        seen.append(wanted)
    return errors


class StorageClassStrategy(Strategy):
    """Storage classes: immutable but for their metadata."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        value.setdefault("reclaimPolicy", "Delete")
        value.setdefault("volumeBindingMode", "Immediate")

    rules = RULES["ValidateStorageClass"]
    change_rules = RULES["ValidateStorageClassUpdate"]


def _driver_and_parameters_stay(new: JsonObject, path: str, old: JsonObject) -> list[FieldError]:
    return [
        fields.forbidden(f"{path}{part}", f"updates to {part} are forbidden.")
        for part in ("driverName", "parameters")
        if new.get(part) != old.get(part)
    ]


class AttributesClassStrategy(Strategy):
    """Classes of attributes of volumes; they stay while something uses them."""

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Add the finalizer of the protection controller (StorageObjectInUseProtection)."""
        finalizers = value["metadata"].setdefault("finalizers", [])
        if PROTECTION not in finalizers:
            finalizers.append(PROTECTION)

    rules = RULES["ValidateVolumeAttributesClass"]
    change_rules = RULES["ValidateVolumeAttributesClassUpdate"]


def _inline_or_named(source: JsonObject, path: str) -> list[FieldError]:
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if volume is None and inline is None:
        return [fields.required(path, why)]
    if volume is not None and inline is not None:
        return [fields.forbidden(path, why)]
    if volume == "":
        why = "must specify non empty persistentVolumeName"
        return [fields.required(f"{path}.persistentVolumeName", why)]
    if inline is None:
        return []
    return volume_spec_errors(inline, f"{path}.inlineVolumeSpec", inline=True)


class AttachmentStrategy(Strategy):
    """Volumes that are to be attached to nodes."""

    status_keeps = frozenset()
    unconditional = False

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin detached."""
        value["status"] = {"attached": False}

    rules = RULES["ValidateVolumeAttachment"]
    change_rules = RULES["ValidateVolumeAttachmentUpdate"]
    status_rules = RULES["validateVolumeAttachmentStatus"]


def _topology_keys(keys: Sequence[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    again, at = fields.repeated(keys), path.rpartition(".")[0]  # as upstream has it
    for number, key in enumerate(keys):
        errors += [] if key else [fields.required(at, key)]
        errors += [fields.duplicate(at, key)] if number in again else []
        errors += qualified(key, at)
    return errors


def _drivers(drivers: Sequence[JsonObject], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = set()
    for index, driver in enumerate(drivers):
        at, name = f"{path}[{index}]", driver.get("name") or ""
        errors += RULES["validateCSINodeDriver"](driver, at)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen.add(name)
        errors += _topology_keys(driver.get("topologyKeys") or (), f"{at}.topologyKeys")
    return errors


class CsiNodeStrategy(Strategy):
    """CSINodes: what CSI drivers report of a node."""

    unconditional = False
    rules = RULES["ValidateCSINode"]


def _token_requests(requests: Sequence[JsonObject], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = set()
    for index, request in enumerate(requests):
        at, audience = f"{path}[{index}]", request.get("audience") or ""
        if audience in seen:
            errors.append(fields.duplicate(f"{at}.audience", audience))
            continue
        seen.add(audience)
        errors += RULES["validateTokenRequests"](request, at)
    return errors


def _life_cycles(modes: Sequence[str], path: str) -> list[FieldError]:
    # Upstream leaves the places of modes out.
    return [
        fields.not_supported(path, mode, LIFE_CYCLES, ordered=True)
        for mode in modes
        if mode not in LIFE_CYCLES
    ]


class CsiDriverStrategy(Strategy):
    """CSI drivers."""

    unconditional = False
    rules = RULES["ValidateCSIDriver"]
    change_rules = RULES["ValidateCSIDriverUpdate"]

    def __init__(self, features: Features = DEFAULT_1_36) -> None:
        limited = {"preventPodSchedulingIfMissing": False} if LIMIT_SCALING in features else {}
        self._defaults = CSI_DRIVER | limited

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        for name, item in self._defaults.items():
            spec.setdefault(name, item)
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop what needs VolumeLimitScaling, which is off by default."""
        value["spec"].pop("preventPodSchedulingIfMissing", None)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """The same, and count changes, though new objects have no generation."""
        new["spec"].pop("preventPodSchedulingIfMissing", None)
        if new["spec"] != old["spec"]:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return what should be set beside requests for tokens, if these are new."""
        spec = value["spec"]
        if old and old["spec"].get("tokenRequests") == spec.get("tokenRequests"):
            return []
        if not spec.get("tokenRequests") or "serviceAccountTokenInSecrets" in spec:
            return []
        return [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent possible logging of tokens in volume attributes"
        ]


class StorageCapacityStrategy(Strategy):
    """What a driver can still provide somewhere."""

    unconditional = False
    rules = RULES["ValidateCSIStorageCapacity"]
    change_rules = RULES["ValidateCSIStorageCapacityUpdate"]

"""What admission adds to volumes and their claims, and which claims may grow.

Source: k8s.io/kubernetes `plugin/pkg/admission/storage`.
"""

from collections.abc import Iterable
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import CREATES, UPDATES, Concerns, Review
from dralab.apiserver.storage import Key, Stored
from dralab.objects.metadata import annotations_of, spec_of, status_of
from dralab.values import quantity
from dralab.values.json_types import JsonObject

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
CLASSES: Final = "storage.k8s.io/storageclasses"
BY_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
PROTECTION: Final = {
    CLAIMS: "kubernetes.io/pvc-protection",
    VOLUMES: "kubernetes.io/pv-protection",
}


def newest_default(classes: Iterable[Stored], annotations: Iterable[str]) -> str | None:
    """Return the name of the newest class marked as default; None if no class is."""
    names = tuple(annotations)
    found = [
        (stored.value["metadata"]["creationTimestamp"], stored.key.name)
        for stored in classes
        if any(annotations_of(stored.value).get(name) == "true" for name in names)
    ]
    if not found:
        return None
    newest = max(found)[0]
    return min(name for time, name in found if time == newest)


class DefaultStorageClass:
    """Gives volume claims without a class the default one."""

    name = "DefaultStorageClass"
    concerns: Final[Concerns] = {CLAIMS: CREATES}

    def admit(self, review: Review) -> None:
        """Name the class in a new claim."""
        if review.kind.hub != CLAIMS or review.operation != "CREATE" or review.value is None:
            return
        spec = review.value["spec"]
        if spec.get("storageClassName") is not None or review.subresource:
            return
        if BY_ANNOTATION in annotations_of(review.value):
            return
        if name := newest_default(review.scope.all_of(CLASSES, ""), DEFAULT_CLASS):
            spec["storageClassName"] = name


class ObjectInUseProtection:
    """Keeps volumes and claims until they are no longer used (StorageObjectInUseProtection)."""

    name = "StorageObjectInUseProtection"
    concerns: Final[Concerns] = dict.fromkeys(PROTECTION, CREATES)

    def admit(self, review: Review) -> None:
        """Add the finalizer to a new volume or claim."""
        finalizer = PROTECTION.get(review.kind.hub)
        if finalizer is None or review.operation != "CREATE" or review.value is None:
            return
        finalizers = review.value["metadata"].setdefault("finalizers", [])
        if finalizer not in finalizers:
            finalizers.append(finalizer)


class ClaimResize:
    """Lets a claim grow only if its class allows expansion (PersistentVolumeClaimResize)."""

    name = "PersistentVolumeClaimResize"
    concerns: Final[Concerns] = {CLAIMS: UPDATES}

    def validate(self, review: Review) -> None:
        """Raise Forbidden if a claim grows although its class does not allow it."""
        if review.kind.hub != CLAIMS or review.operation != "UPDATE" or review.subresource:
            return
        if review.value is None or review.old is None:
            return
        if _size(review.value) <= _size(review.old):
            return
        if status_of(review.old).get("phase") != "Bound":
            raise _forbidden(review, "Only bound persistent volume claims can be expanded")
        name = spec_of(review.value).get("storageClassName") or annotations_of(review.value).get(
            BY_ANNOTATION
        )
        found = review.scope.find(Key(CLASSES, "", name)) if name else None
        if found is None or not found.value.get("allowVolumeExpansion"):
            raise _forbidden(
                review,
                "only dynamically provisioned pvc can be resized and the storageclass that "
                "provisions the pvc must support resize",
            )


def _size(claim: JsonObject) -> Any:
    requests = (spec_of(claim).get("resources") or {}).get("requests") or {}
    return quantity.parse_any(requests.get("storage") or "0")


def _forbidden(review: Review, why: str) -> ApiError:
    return ApiError.forbidden(review.kind.plural, review.given_name, why)

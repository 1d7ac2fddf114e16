"""Admin access to devices only in labelled namespaces (DRAAdminNamespaceController)."""

from collections.abc import Iterator
from typing import Any, Final

from dralab.api import fields
from dralab.apiserver.admission.chain import CREATES, Concerns, Review
from dralab.apiserver.storage import Key
from dralab.objects.metadata import labels_of

LABEL: Final = "resource.kubernetes.io/admin-access"
KINDS: Final = {
    "resource.k8s.io/resourceclaims": "spec.devices.requests",
    "resource.k8s.io/resourceclaimtemplates": "spec.spec.devices.requests",
}


class AdminAccess:
    """Refuses claims with admin access outside of labelled namespaces."""

    name = "AdminAccess"
    concerns: Final[Concerns] = dict.fromkeys(KINDS, CREATES)

    def admit(self, review: Review) -> None:
        """Raise Invalid where a new claim asks for what its namespace may not have."""
        path = KINDS.get(review.kind.hub)
        if path is None or review.operation != "CREATE" or review.value is None:
            return
        wrong = list(_asking(review.value, path))
        if not wrong:
            return
        found = review.find(Key("namespaces", "", review.namespace))
        labels = labels_of(found.value) if found else {}
        if labels.get(LABEL) == "true":
            return
        why = (
            "admin access to devices requires the `resource.kubernetes.io/admin-access: true` "
            "label on the containing namespace"
        )
        kind = review.kind
        errors = [fields.forbidden(field, why) for field in wrong]
        raise fields.invalid(kind.kind, review.name, errors, group=kind.group)


def _asking(value: dict[str, Any], path: str) -> Iterator[str]:
    requests: Any = value
    for part in path.split("."):
        requests = requests.get(part) if isinstance(requests, dict) else None
    for index, request in enumerate(requests or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield f"{path}[{index}].exactly.adminAccess"

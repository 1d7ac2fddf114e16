"""Requesters of certificates, and forbidden subjects (CertificateSubjectRestriction).

Who may approve and sign is left to authorization.
Sources: k8s.io/kubernetes `plugin/pkg/admission/certificates`, `pkg/registry/certificates`.
"""

from typing import Final

from dralab.api.core.certificates import parsed
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import CREATES, Concerns, Review
from dralab.apiserver.access.users import MASTERS
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonDict

HUB: Final = "certificates.k8s.io/certificatesigningrequests"
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"


class CertificateRequester:
    """Sets the requester of each new request, ignoring what the client sent. Always on."""

    name = "CertificateRequester"
    concerns: Final[Concerns] = {HUB: CREATES}

    def admit(self, review: Review) -> None:
        """Set the requester of a new request."""
        if review.kind.hub != HUB or review.operation != "CREATE" or review.value is None:
            return
        spec: JsonDict = review.value.setdefault("spec", {})
        for part in ("username", "uid", "groups", "extra"):
            spec.pop(part, None)
        user = review.user
        spec["username"] = user.name
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = list(user.groups)
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}


class CertificateSubjectRestriction:
    """Refuses requests for certificates of superusers."""

    name = "CertificateSubjectRestriction"
    concerns: Final[Concerns] = {HUB: CREATES}

    def admit(self, review: Review) -> None:
        """Refuse a client certificate with the group system:masters. ApiError Forbidden."""
        if review.kind.hub != HUB or review.operation != "CREATE" or review.value is None:
            return
        spec = spec_of(review.value)
        if spec.get("signerName") != CLIENT_SIGNER:
            return
        from cryptography.x509.oid import NameOID

        try:
            subject = parsed(spec.get("request") or "").subject
            groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        except ValueError:
            return  # validation says what is wrong with it
        if any(group.value == MASTERS for group in groups):
            raise forbidden(
                review, f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            )


def forbidden(review: Review, why: str) -> ApiError:
    """Return the refusal of a request for a certificate."""
    kind = review.kind
    return ApiError.forbidden(kind.plural, review.name, why, group=kind.group)

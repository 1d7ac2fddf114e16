"""Which users may approve and sign requests for certificates, for each signer.

CertificateApproval and CertificateSigning.
Source: k8s.io/kubernetes `plugin/pkg/admission/certificates`.
"""

from collections.abc import Mapping
from typing import Any, Final

from dralab.apiserver.access.admission.certificates import HUB, forbidden
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.apiserver.access.authorization.attributes import Attributes, Authorizer
from dralab.objects.metadata import spec_of, status_of


class CertificateApproval:
    """Allows approvals by users with the verb `approve` for the signer."""

    name = "CertificateApproval"
    concerns: Final[Concerns] = {HUB: WRITES}

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def admit(self, review: Review) -> None:
        """Refuse an approval by another user. ApiError Forbidden."""
        if review.kind.hub == HUB and review.subresource == "approval":
            _check_signer(review, "approve", self._authorizer)


class CertificateSigning:
    """Allows certificates to be issued by users with the verb `sign` for the signer."""

    name = "CertificateSigning"
    concerns: Final[Concerns] = {HUB: WRITES}

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def admit(self, review: Review) -> None:
        """Refuse a certificate, or a failure, by another user. ApiError Forbidden."""
        if review.kind.hub != HUB or review.subresource != "status":
            return
        after, before = status_of(review.value or {}), status_of(review.old or {})
        if after.get("certificate") != before.get("certificate") or _conditions(
            after
        ) != _conditions(before):
            _check_signer(review, "sign", self._authorizer)


def _conditions(status: Mapping[str, Any]) -> list[tuple[object, object]]:
    return [(each.get("type"), each.get("status")) for each in status.get("conditions") or ()]


def _check_signer(review: Review, verb: str, authorizer: Authorizer) -> None:
    """Refuse a user who may not do something for a signer, nor for all signers of its domain."""
    if review.user.is_superuser:
        return
    signer = spec_of(review.old or {}).get("signerName") or ""
    domain = signer.partition("/")[0]
    for name in (signer, f"{domain}/*"):
        wanted = Attributes(
            user=review.user,
            verb=verb,
            group="certificates.k8s.io",
            version="*",
            resource="signers",
            name=name,
        )
        if authorizer.authorize(wanted).allowed:
            return
    what = "approve requests" if verb == "approve" else "sign requests"
    raise forbidden(review, f'user not permitted to {what} with signerName "{signer}"')

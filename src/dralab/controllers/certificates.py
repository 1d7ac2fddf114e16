"""Signs approved certificate requests with the cluster's CA.

Users or other controllers approve them.
Source: kube-controller-manager's `pkg/controller/certificates/signer`, `authority`.
"""

import base64
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from dralab.api.core.certificates import CertificateRequestError, parsed
from dralab.api.status import ignoring
from dralab.files.reading import read
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import NamespacedName, spec_of, status_of
from dralab.runtime.client import amend
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CERTIFICATE_REQUESTS
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from cryptography import x509

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
SIGNERS: Final = (CLIENT, KUBELET_CLIENT, KUBELET_SERVING)
NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"
LONGEST: Final = timedelta(days=365)  # --cluster-signing-duration
BACKDATE: Final = timedelta(minutes=5)  # for clocks that differ
BOTH: Final = frozenset({"digital signature", "key encipherment"})
# The usages that signers may write, and how certificates say them.
KEY_USAGES: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
}


class SigningAuthority(Protocol):
    """A certificate and its private key, read when the first request is signed."""

    def load(self) -> "tuple[x509.Certificate, Any]":
        """Return the certificate and the private key."""
        ...


@dataclass(frozen=True, slots=True)
class Authority:
    """Files (PEM) of the certificate and the private key that sign."""

    certificate: Path
    key: Path

    def load(self) -> "tuple[x509.Certificate, Any]":
        """Read the files. OSError, ValueError: they cannot be used."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return (
            x509.load_pem_x509_certificate(read(self.certificate)),
            load_pem_private_key(read(self.key), password=None),
        )


class CertificateSigner:
    """Signs approved requests for Kubernetes' own signers, and no others."""

    def __init__(self, manager: Manager, authority: SigningAuthority) -> None:
        self.client = manager.client
        self.clock = manager.engine.clock
        self.manager = manager
        self.authority = authority
        self.requests = manager.cache(CERTIFICATE_REQUESTS)
        self.queue = manager.queue("certificatesigningrequests", self.reconcile)
        self.requests.subscribe(self._changed)

    def _changed(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and _is_waiting(new):
            self.queue.add(new["metadata"]["name"])

    def reconcile(self, name: str) -> int | None:
        """Sign one request, or record why it cannot be signed."""
        request = self.requests.get(NamespacedName("", name))
        if request is None or not _is_waiting(request):
            return None
        spec = spec_of(request)
        try:
            wanted = parsed(spec.get("request") or "")
            check(spec["signerName"], wanted, spec.get("usages") or ())
            certificate = self._signed(wanted, spec)
        except ValueError as error:  # what is wrong deep in a request is one, too
            problem = str(error)

            def change(copy: JsonDict) -> bool:
                condition = {
                    "type": "Failed",
                    "status": "True",
                    "reason": "SignerValidationFailure",
                    "message": problem,
                    "lastUpdateTime": self.manager.now(),
                }
                status = copy.setdefault("status", {})
                status["conditions"] = [*(status.get("conditions") or ()), condition]
                return True
        else:

            def change(copy: JsonDict) -> bool:
                copy.setdefault("status", {})["certificate"] = certificate
                return True

        with ignoring("NotFound"):
            self.requests.learn(
                amend(self.client, CERTIFICATE_REQUESTS, request, change, subresource="status")
            )
        return None

    def _signed(self, wanted: "x509.CertificateSigningRequest", spec: Mapping[str, Any]) -> str:
        """Return base64 of the certificate as PEM. CertificateRequestError."""
        from cryptography.hazmat.primitives.serialization import Encoding

        now = datetime.fromtimestamp(self.clock.now() // SECOND, UTC)
        asked = spec.get("expirationSeconds")
        lasts = min(LONGEST, timedelta(seconds=asked)) if asked else LONGEST
        made = sign(wanted, spec["usages"], self._loaded, now, lasts)
        return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()

    @cached_property
    def _loaded(self) -> "tuple[x509.Certificate, Any]":
        return self.authority.load()


def _is_waiting(request: JsonDict) -> bool:
    """Return whether a request is approved, and ours to sign."""
    status = status_of(request)
    kinds = {each.get("type") for each in status.get("conditions") or ()}
    return (
        spec_of(request).get("signerName") in SIGNERS
        and "Approved" in kinds
        and kinds.isdisjoint({"Denied", "Failed"})
        and not status.get("certificate")
    )


def check(signer: str, wanted: "x509.CertificateSigningRequest", usages: Collection[str]) -> None:
    """Refuse a request that a signer must not sign. CertificateRequestError, as upstream."""
    if not wanted.is_signature_valid:
        raise CertificateRequestError("unable to verify certificate request signature")
    if signer == CLIENT:
        for usage in usages:
            if usage not in {*BOTH, "client auth"}:
                raise CertificateRequestError(f"invalid usage for client certificate: {usage}")
        if "client auth" not in usages:
            raise CertificateRequestError('usages did not contain "client auth"')
        return
    _check_node(wanted)
    names = _alternative_names(wanted)
    purpose = "client auth" if signer == KUBELET_CLIENT else "server auth"
    allowed = ({"digital signature", purpose}, {*BOTH, purpose})
    if set(usages) not in allowed:
        raise CertificateRequestError(f"usages did not match {sorted(allowed[1])}")
    forbidden = {"Email": "RFC822Name", "URI": "UniformResourceIdentifier"}
    if signer == KUBELET_CLIENT:
        forbidden |= {"DNS": "DNSName", "IP": "IPAddress"}
    elif not {"DNSName", "IPAddress"} & names:
        raise CertificateRequestError("DNS or IP subjectAltName is required")
    for told, kind in forbidden.items():
        if kind in names:
            raise CertificateRequestError(f"{told} subjectAltNames are not allowed")


def _check_node(wanted: "x509.CertificateSigningRequest") -> None:
    from cryptography.x509.oid import NameOID

    groups = [
        each.value for each in wanted.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    common = [
        str(each.value) for each in wanted.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    if groups != [NODES]:
        raise CertificateRequestError("subject organization is not system:nodes")
    if not common or not common[-1].startswith(NODE_PREFIX):
        raise CertificateRequestError("subject common name does not begin with system:node:")


def _alternative_names(wanted: "x509.CertificateSigningRequest") -> set[str]:
    from cryptography import x509

    try:
        found = wanted.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    except ValueError as error:
        raise CertificateRequestError(f"malformed certificate request: {error}") from error
    return {type(name).__name__ for name in found}


def sign(
    wanted: "x509.CertificateSigningRequest",
    usages: Collection[str],
    authority: "tuple[x509.Certificate, Any]",
    now: datetime,
    lasts: timedelta,
) -> "x509.Certificate":
    """Return the certificate that was asked for: its subject, names and key, and nothing else."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer, key = authority
    uses = {KEY_USAGES[usage] for usage in usages if usage in KEY_USAGES}
    parts = (*dict.fromkeys(KEY_USAGES.values()), "key_cert_sign", "crl_sign")
    purposes = [
        found
        for usage, found in (
            ("client auth", ExtendedKeyUsageOID.CLIENT_AUTH),
            ("server auth", ExtendedKeyUsageOID.SERVER_AUTH),
        )
        if usage in usages
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(wanted.subject)
        .issuer_name(issuer.subject)
        .public_key(wanted.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(min(now + lasts, issuer.not_valid_after_utc))
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),  # type: ignore[arg-type]  # ours is ECDSA or RSA
            critical=False,
        )
    )
    if uses:  # one without any would be malformed
        made = made.add_extension(
            x509.KeyUsage(
                **{part: part in uses for part in parts}, encipher_only=False, decipher_only=False
            ),
            critical=True,
        )
    if _alternative_names(wanted):
        found = wanted.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        made = made.add_extension(found.value, critical=False)
    return made.sign(key, hashes.SHA256())

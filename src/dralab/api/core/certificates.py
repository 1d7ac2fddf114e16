"""Requests for certificates: validation, and how they may change.

Who may approve and sign is left to admission, signing to a controller.
Source: k8s.io/kubernetes `pkg/apis/certificates/validation`, `pkg/registry/certificates`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from cryptography.x509 import CertificateSigningRequest

LEGACY: Final = "kubernetes.io/legacy-unknown"
USAGES: Final = (
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement",
    "data encipherment", "cert sign", "crl sign", "encipher only", "decipher only", "any",
    "server auth", "client auth", "code signing", "email protection", "s/mime",
    "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing",
    "microsoft sgc", "netscape sgc",
)  # fmt: skip
LONGEST: Final = 253 + 1 + 253 + 63 + 1  # of a signer: a domain, and a path of two names
DECIDED: Final = ("Approved", "Denied")
FINAL: Final = (*DECIDED, "Failed")
TRUTHS: Final = ("False", "True", "Unknown")
PEM_BEGIN: Final = b"-----BEGIN CERTIFICATE REQUEST-----"

BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n(.*?)-----END \1-----", re.DOTALL)


class CertificateRequestError(ValueError):
    """What was sent is not a request for a certificate; `str` says why."""


def parsed(text: str) -> "CertificateSigningRequest":
    """Return the request in a `spec.request`: base64 of PEM. CertificateRequestError."""
    from cryptography import x509

    try:
        pem = base64.b64decode(text, validate=True)
    except binascii.Error:
        pem = b""
    # Text may stand before the block, as in what openssl writes.
    start = pem.find(b"-----BEGIN ")
    if start < 0 or not pem[start:].startswith(PEM_BEGIN):
        raise CertificateRequestError("PEM block type must be CERTIFICATE REQUEST")
    try:
        return x509.load_pem_x509_csr(pem[start:])
    except ValueError as error:
        raise CertificateRequestError(f"malformed certificate request: {error}") from error


RULES: Final = RuleTables(globals())


class CertificateRequestStrategy(Strategy):
    """CertificateSigningRequests."""

    rules = RULES["ValidateCertificateSigningRequestCreate"]

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep what was asked for."""
        new["spec"] = old.get("spec", {})

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """Say when conditions changed."""
        _stamp(new, old, now)

    def prepare_part(self, subresource: str, new: JsonDict, old: JsonDict, now: str) -> None:
        """Say when an approval was given."""
        if subresource == "approval":
            _stamp(new, old, now)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return nothing: what was asked for stays as it is."""
        return []

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change of a signer."""
        errors = _condition_problems(new, old, may_add=("Failed",))
        before, after = _status(old).get("certificate"), _status(new).get("certificate")
        if after and after != before and (why := _certificate_problem(after)):
            errors.insert(0, fields.invalid_value("status.certificate", "<certificate data>", why))
        if before and after != before:
            why = "updates may not change status.certificate"
            errors.append(fields.forbidden("status.certificate", why))
        return errors

    def validate_part(self, subresource: str, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of an approval."""
        return _condition_problems(new, old, may_add=DECIDED) if subresource == "approval" else []

    def name_problems(self, name: str) -> list[str]:  # noqa: ARG002 - as upstream has it
        """Return nothing: any name is valid."""
        return []


def _status(value: JsonDict) -> JsonDict:
    return value.get("status") or {}


def _certificate_problem(encoded: str) -> str:
    """Return the error of a certificate chain in PEM; empty if it is valid.

    Source: k8s.io/kubernetes `pkg/apis/certificates/validation` (validateCertificate).
    """
    blocks = BLOCK.findall(base64.b64decode(encoded).decode("latin-1"))
    for kind, body in blocks:
        if kind != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind}"'
        if ":" in body:
            return "no PEM block headers are permitted"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _request(spec: JsonDict, path: str) -> list[FieldError]:
    try:
        parsed(spec.get("request") or "")
    except CertificateRequestError as error:
        return [fields.invalid_value(f"{path}.request", spec.get("request"), str(error))]
    return []


def _usages(usages: Sequence[str], path: str) -> list[FieldError]:
    errors = [
        fields.not_supported(f"{path}[{index}]", usage, USAGES)
        for index, usage in enumerate(usages)
        if usage not in USAGES
    ]
    return errors + fields.duplicates(usages, path)


def _signer(signer: str, path: str) -> list[FieldError]:
    if signer != LEGACY:
        return signer_errors(signer, path)
    why = "the legacy signerName is not allowed via this API version"
    return [fields.invalid_value(path, signer, why)]


def signer_errors(signer: str, path: str) -> list[FieldError]:
    """Return the errors of the name of a signer, such as `example.com/signer-name`."""
    if not signer:
        return [fields.required(path)]
    domain, slash, rest = signer.partition("/")
    if not slash or "/" in rest:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [fields.invalid_value(path, signer, why)]
    errors = [] if len(domain) <= 253 else [fields.too_long(path, 253)]
    errors += _first_wrong(domain, names.label_problems, path)
    if "." not in domain:
        why = "should be a domain with at least two segments separated by dots"
        errors.append(fields.invalid_value(path, domain, why))
    errors += _first_wrong(rest, names.subdomain_problems, path)
    return errors if len(signer) <= LONGEST else [*errors, fields.too_long(path, LONGEST)]


def _first_wrong(text: str, problems: Callable[[str], list[str]], path: str) -> list[FieldError]:
    """Return the errors of the first of the parts between dots that is wrong."""
    for part in text.split("."):
        if whys := problems(part):
            shown = [f'validating label "{part}": {why}' for why in whys]
            return [fields.invalid_value(path, text, why) for why in shown]
    return []


def _stamp(new: JsonDict, old: JsonDict, now: str) -> None:
    """Give conditions the times that a client left out."""
    before = {
        (each.get("type"), each.get("status")): each.get("lastTransitionTime")
        for each in _status(old).get("conditions") or ()
    }
    for each in _status(new).get("conditions") or ():
        each["lastUpdateTime"] = each.get("lastUpdateTime") or now
        known = before.get((each.get("type"), each.get("status")))
        each["lastTransitionTime"] = each.get("lastTransitionTime") or known or now


def _condition_problems(
    new: JsonDict, old: JsonDict, *, may_add: tuple[str, ...]
) -> list[FieldError]:
    """Return the errors of conditions; those that are final come once and stay."""
    path = "status.conditions"
    conditions = _status(new).get("conditions") or []
    errors = []
    kinds: list[str] = []
    for index, each in enumerate(conditions):
        kind, status = each.get("type") or "", each.get("status") or ""
        if not kind:
            errors.append(fields.required(f"{path}[{index}].type"))
        elif kind in kinds:
            errors.append(fields.duplicate(f"{path}[{index}].type", kind))
        kinds.append(kind)
        known = ("True",) if kind in FINAL else TRUTHS
        if not status:
            errors.append(fields.required(f"{path}[{index}].status"))
        elif status not in known:
            errors.append(fields.not_supported(f"{path}[{index}].status", status, known))
    if set(DECIDED) <= set(kinds):
        why = "Approved and Denied conditions are mutually exclusive"
        errors.append(fields.invalid_value(path, next(k for k in kinds if k in DECIDED), why))
    before = [each.get("type") for each in _status(old).get("conditions") or ()]
    for kind in FINAL:
        verb = ""
        if kind in before and kind not in kinds:
            verb = "remove"
        elif kind in kinds and kind not in before and kind not in may_add:
            verb = "add"
        if verb:
            why = f'updates may not {verb} a condition of type "{kind}"'
            errors.append(fields.forbidden(path, why))
    return errors

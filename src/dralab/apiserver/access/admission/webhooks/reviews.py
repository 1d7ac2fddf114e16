"""Requests to webhooks and their answers: AdmissionReview v1 and v1beta1.

Source of fields and words: k8s.io/apiserver `admission/plugin/webhook/request` and
`admission/plugin/webhook/errors`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.admission.expressions import request_of
from dralab.apiserver.outgoing.answers import read_answer, status_words
from dralab.apiserver.outgoing.client import CallAnswer
from dralab.values.json_patches import go_json_kind
from dralab.values.records import dataclass

API_GROUP: Final = "admission.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
LAST_STATUS: Final = 599  # the last one that HTTP has a meaning for


# The fields of an AdmissionResponse and how Go calls their types.
TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "uid": (str, "types.UID"),
    "allowed": (bool, "bool"),
    "status": (dict, "v1.Status"),
    "patch": (str, "[]uint8"),
    "patchType": (str, "v1.PatchType"),
    "auditAnnotations": (dict, "map[string]string"),
    "warnings": (list, "[]string"),
}


class BadAnswer(Exception):  # noqa: N818 - a fact, which messages tell
    """The answer of a webhook is not valid; `str` says why."""


class NoAnswer(BadAnswer):
    """The answer of a webhook is not a review at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A webhook's answer. `result` is the Status of a denial; `patch` is JSON text."""

    allowed: bool
    result: Mapping[str, Any]
    patch: bytes
    patch_type: str
    warnings: Sequence[str]
    annotations: Mapping[str, str]


def question(
    review: Review,
    kind: Kind,
    *,
    uid: str,
    version: str,
    value: Mapping[str, Any] | None,
    old: Mapping[str, Any] | None,
) -> bytes:
    """Return the body of a call: `value` and `old` are the objects in the version of `kind`."""
    request = {"uid": uid, **request_of(review, kind)}
    user = request["userInfo"]
    options = request.pop("options")
    del request["userInfo"]
    dry_run = request.pop("dryRun")
    request |= {
        "userInfo": user,
        "object": value,
        "oldObject": old,
        "dryRun": dry_run,
        "options": options,
    }
    asked = {
        "kind": "AdmissionReview",
        "apiVersion": f"{API_GROUP}/{version}",
        "request": request,
    }
    return orjson.dumps(asked)


def verdict(answer: CallAnswer, *, uid: str, version: str, mutating: bool) -> Verdict:
    """Read a webhook's answer. BadAnswer."""
    found = _review(answer, version)
    response = found.get("response")
    if response is None:
        raise BadAnswer("webhook response was absent")
    if not isinstance(response, dict):
        raise BadAnswer(
            "json: cannot unmarshal into Go struct field AdmissionReview.response of type "
            f"{version}.AdmissionResponse"
        )
    given = response.get("uid") or ""
    if version == "v1" and given != uid:
        raise BadAnswer(f'expected response.uid="{uid}", got "{given}"')
    wanted = f"{API_GROUP}/{version}"
    api_version, kind = found.get("apiVersion") or "", found.get("kind") or ""
    if version == "v1" and (api_version, kind) != (wanted, "AdmissionReview"):
        raise BadAnswer(
            f"expected webhook response of {wanted}, Kind=AdmissionReview, got "
            f"{api_version or '/'}, Kind={kind}"
        )
    patch, patch_type = _patch(response, mutating=mutating, strict=version == "v1")
    return Verdict(
        allowed=response.get("allowed") is True,
        result=_mapping(response.get("status")),
        patch=patch,
        patch_type=patch_type,
        warnings=[str(each) for each in response.get("warnings") or ()],
        annotations={
            str(key): str(value)
            for key, value in _mapping(response.get("auditAnnotations")).items()
        },
    )


def _review(answer: CallAnswer, version: str) -> Mapping[str, Any]:
    """Return a webhook's review, of the version that was asked for. NoAnswer."""
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        raise NoAnswer(status_words(answer))
    try:
        found = read_answer(answer)
    except ValueError as error:
        raise NoAnswer(str(error)) from error
    group, _, given = str(found.get("apiVersion") or "").partition("/")
    is_review = group == API_GROUP and found.get("kind") == "AdmissionReview"
    if is_review and given in VERSIONS and given != version:
        raise NoAnswer(
            f"converting ({given}.AdmissionReview) to ({version}.AdmissionReview): "
            "unknown conversion"
        )
    response = found.get("response")
    if isinstance(response, dict):
        for name, (type_, go) in TYPES.items():
            value = response.get(name)
            if value is not None and (
                not isinstance(value, type_) or (type_ is int and isinstance(value, bool))
            ):
                raise NoAnswer(
                    f"json: cannot unmarshal {go_json_kind(value)} into Go struct field "
                    f"AdmissionResponse.response.{name} of type {go}"
                )
    return found


def _patch(response: Mapping[str, Any], *, mutating: bool, strict: bool) -> tuple[bytes, str]:
    """Return a patch and its type: both or neither. BadAnswer."""
    text, kind = response.get("patch"), response.get("patchType")
    try:
        patch = base64.b64decode(text or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise BadAnswer("illegal base64 data in response.patch") from None
    if not mutating:
        if not strict:
            return b"", ""
        if patch:
            raise BadAnswer("validating webhook may not return response.patch")
        if kind is not None:
            raise BadAnswer("validating webhook may not return response.patchType")
        return b"", ""
    if not strict:
        return patch, "JSONPatch" if patch else ""
    if patch and kind is None:
        raise BadAnswer("webhook returned response.patch but not response.patchType")
    if not patch and kind is not None:
        raise BadAnswer("webhook returned response.patchType but not response.patch")
    if kind is not None and kind == "":
        raise BadAnswer('webhook returned invalid response.patchType of ""')
    return patch, kind or ""


def denial(name: str, result: Mapping[str, Any]) -> ApiError:
    """Return the error for the client of a denied write."""
    message = f'admission webhook "{name}" denied the request'
    reason = result.get("reason") or ""
    if result.get("message"):
        message += f": {result['message']}"
    elif reason:
        message += f": {reason}"
    else:
        message += " without explanation"
    code = result.get("code")
    if not isinstance(code, int) or not HTTPStatus.BAD_REQUEST <= code <= LAST_STATUS:
        code = HTTPStatus.BAD_REQUEST
    told: dict[str, Any] = {"reason": str(reason), "message": message, "code": int(code)}
    if isinstance(result.get("details"), dict):
        told["details"] = result["details"]
    return ApiError.from_status(told)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

"""The subresource `token` of service accounts: a token, perhaps bound to a pod, secret or node.

Source: k8s.io/kubernetes `pkg/registry/core/serviceaccount/storage/token.go`,
`pkg/apis/authentication/validation`.
"""

from typing import Final

from dralab.api import fields
from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.service_accounts import LIFETIME, Bound
from dralab.apiserver.storage import Key
from dralab.apiserver.verbs.state.context import Scope
from dralab.kernel.clock import rfc3339
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonDict

GROUP: Final = "authentication.k8s.io"
SHORTEST: Final = 600  # seconds
LONGEST: Final = 1 << 32


def give_out(scope: Scope, kind: Kind, name: str, namespace: str, spec: JsonDict) -> JsonDict:
    """Return the TokenRequest with this spec, answered. ApiError."""
    account = scope.live(kind, namespace, name).value
    issuer = scope.context.issuer
    audiences = spec.get("audiences") or list(issuer.audiences)
    given = spec.get("expirationSeconds")
    seconds = LIFETIME if given is None else given
    _check_lifetime(seconds)
    reference = spec.get("boundObjectRef")
    bound = _bound(scope, name, namespace, reference) if reference else None
    longest = issuer.settings.longest
    if longest and seconds > longest:
        scope.warnings.append(
            f"requested expiration of {seconds} seconds shortened to {longest} seconds"
        )
        seconds = longest
    token, ends = issuer.issue(account, audiences, seconds, bound)
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": scope.context.uid(),
            "creationTimestamp": scope.context.now(),
            "managedFields": [
                {
                    "manager": scope.options.field_manager,
                    "operation": "Update",
                    "apiVersion": f"{GROUP}/v1",
                    "time": scope.context.now(),
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": _owned(spec)},
                    "subresource": "token",
                }
            ],
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
        "status": {"token": token, "expirationTimestamp": rfc3339(ends)},
    }


def _owned(spec: JsonDict) -> JsonDict:
    """Return the fields of a request that its client owns, those with defaults among them."""
    found: JsonDict = {"f:expirationSeconds": {}}
    if spec.get("audiences"):
        found["f:audiences"] = {}
    if reference := spec.get("boundObjectRef"):
        found["f:boundObjectRef"] = {f"f:{part}": {} for part in sorted(reference)}
    return dict(sorted(found.items()))


def _check_lifetime(seconds: int) -> None:
    why = ""
    if seconds < SHORTEST:
        why = "may not specify a duration less than 10 minutes"
    elif seconds > LONGEST:
        why = "may not specify a duration larger than 2^32 seconds"
    if why:
        error = fields.invalid_value("spec.expirationSeconds", seconds, why)
        raise fields.invalid("TokenRequest", "", [error], group=GROUP)


def _bound(scope: Scope, account: str, namespace: str, reference: JsonDict) -> Bound:
    """Return the object that a token is to be bound to."""
    version = reference.get("apiVersion") or ""
    group, _, _ = version.rpartition("/")
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    plural = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind, "")
    if group or not plural:
        shown = version if group else f"/{version}"
        raise ApiError.bad_request(f"cannot bind token to object of type {shown}, Kind={kind}")
    stored = scope.find(Key(plural, "" if kind == "Node" else namespace, name))
    if stored is None:
        raise ApiError.not_found(plural, name)
    value = stored.value
    uid = str(value["metadata"]["uid"])
    if (given := reference.get("uid")) and given != uid:
        raise ApiError.conflict(
            kind,
            name,
            f"the UID in the bound object reference ({given}) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        )
    if kind != "Pod":
        return Bound(kind=kind, name=name, uid=uid)
    spec = spec_of(value)
    if spec.get("serviceAccountName") != account:
        raise ApiError.bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different '
            "serviceaccount name."
        )
    place = None
    if node := spec.get("nodeName"):
        found = scope.find(Key("nodes", "", node))
        place = (node, found.value["metadata"]["uid"] if found is not None else "")
    return Bound(kind=kind, name=name, uid=uid, node=place)

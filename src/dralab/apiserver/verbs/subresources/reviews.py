"""Reviews: requests that are answered by creating an object, such as a TokenReview.

Nothing is stored. Questions about access are answered in `access_reviews`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.chain import INVALID
from dralab.apiserver.access.authentication.errors import Rejected
from dralab.apiserver.access.users import User
from dralab.apiserver.verbs.state import ownership, typed_objects
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.subresources import access_reviews, subresources
from dralab.values.json_types import JsonDict

# (scope, kind, value, namespace, who asks) → spec and status.
Answer = Callable[[Scope, Kind, JsonDict, str, User], JsonDict]


def ask(scope: Scope, kind: Kind, value: JsonDict, namespace: str) -> JsonDict:
    """Answer a review, or bind a pod by the old path `bindings`."""
    meta = value.get("metadata")
    value["metadata"] = meta if isinstance(meta, dict) else {}
    if kind.hub == "bindings":
        name = value["metadata"].get("name") or ""
        pods = scope.context.kinds.find("", "v1", "pods")
        return subresources.call(
            scope, "create", pods, name, "binding", body=value, namespace=namespace, type="merge"
        )
    value = typed_objects.decoded(scope, kind, value)
    answer = ANSWERS.get(kind.plural)
    if answer is None:
        raise ApiError("MethodNotAllowed", f"{kind.plural} cannot be created", details={})
    meta = {key: item for key, item in value["metadata"].items() if item}
    if kind.plural == "selfsubjectreviews":
        meta["creationTimestamp"] = scope.context.now()
    elif kind.plural == "selfsubjectrulesreviews":
        pass
    elif entries := ownership.asked(scope, kind, value):
        meta["managedFields"] = entries
    found = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
    found.update(answer(scope, kind, value, namespace, scope.user))
    if kind.namespaced:
        meta["namespace"] = namespace
    return found


def _self(scope: Scope, kind: Kind, value: JsonDict, namespace: str, user: User) -> JsonDict:
    del scope, kind, value, namespace
    return {"status": {"userInfo": user.info}}


def _token(scope: Scope, kind: Kind, value: JsonDict, namespace: str, user: User) -> JsonDict:
    del kind, namespace, user
    spec = value.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    authentication = scope.context.authentication
    wanted = spec.get("audiences") or authentication.audiences
    try:
        found = authentication.known(spec.get("token") or "", wanted)
    except Rejected as error:
        # The errors of each authenticator, as the union of a real server's lists them.
        return {"spec": spec, "status": {"user": {}, "error": f"[{INVALID}, {error.why}]"}}
    if found is None:
        return {"spec": spec, "status": {"user": {}, "error": INVALID}}
    status = {
        "authenticated": True,
        "user": found.user.info,
        "audiences": list(found.audiences or ()),
    }
    return {"spec": spec, "status": status}


ANSWERS: Final[Mapping[str, Answer]] = {
    "localsubjectaccessreviews": access_reviews.subject_access,
    "selfsubjectaccessreviews": access_reviews.self_access,
    "selfsubjectreviews": _self,
    "selfsubjectrulesreviews": access_reviews.self_rules,
    "subjectaccessreviews": access_reviews.subject_access,
    "tokenreviews": _token,
}

"""Questions about access: Kubernetes' library `authorizer`.

Who answers is an argument: `Authorizer.decide` is asked with what is checked. Source:
k8s.io/apiserver `pkg/cel/library/authz.go`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from dralab.cel.errors import CelError, no_such_overload
from dralab.values.records import dataclass

SIGNATURES: Final = """
authorizer_path Authorizer.path(string) -> PathCheck
authorizer_group Authorizer.group(string) -> GroupCheck
authorizer_serviceaccount Authorizer.serviceAccount(string, string) -> Authorizer
groupcheck_resource GroupCheck.resource(string) -> ResourceCheck
resourcecheck_subresource ResourceCheck.subresource(string) -> ResourceCheck
resourcecheck_namespace ResourceCheck.namespace(string) -> ResourceCheck
resourcecheck_name ResourceCheck.name(string) -> ResourceCheck
authorizer_fieldselector ResourceCheck.fieldSelector(string) -> ResourceCheck
authorizer_labelselector ResourceCheck.labelSelector(string) -> ResourceCheck
pathcheck_check PathCheck.check(string) -> Decision
resourcecheck_check ResourceCheck.check(string) -> Decision
decision_errored Decision.errored() -> bool
decision_error Decision.error() -> string
decision_allowed Decision.allowed() -> bool
decision_reason Decision.reason() -> string
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """What is asked: a path, or a verb on a resource; `account` is a service account to ask for."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """What was decided; `error` where it could not be."""

    allowed: bool
    reason: str = ""
    error: str = ""


Decide = Callable[[AccessCheck], AccessDecision]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerValue:
    """The variable `authorizer`, for the user of a request or for a service account."""

    decide: Decide
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckValue:
    """A question under construction; `kind` is `path`, `group` or `resource`."""

    decide: Decide
    kind: str
    asked: AccessCheck


def _path(authorizer: Any, path: Any) -> CheckValue:
    if type(authorizer) is not AuthorizerValue or type(path) is not str:
        raise no_such_overload()
    if not path:
        raise CelError("path must not be empty")
    asked = AccessCheck(path=path, account=authorizer.account)
    return CheckValue(decide=authorizer.decide, kind="path", asked=asked)


def _group(authorizer: Any, group: Any) -> CheckValue:
    if type(authorizer) is not AuthorizerValue or type(group) is not str:
        raise no_such_overload()
    asked = AccessCheck(group=group, account=authorizer.account)
    return CheckValue(decide=authorizer.decide, kind="group", asked=asked)


def _service_account(authorizer: Any, namespace: Any, name: Any) -> AuthorizerValue:
    if type(authorizer) is not AuthorizerValue or {type(namespace), type(name)} != {str}:
        raise no_such_overload()
    return replace(authorizer, account=(namespace, name))


def _resource(check: Any, resource: Any) -> CheckValue:
    return _refined(check, "group", kind="resource", resource=resource)


def _refined(check: Any, wanted: str, kind: str = "resource", **part: Any) -> CheckValue:
    (text,) = part.values()
    if type(check) is not CheckValue or check.kind != wanted or type(text) is not str:
        raise no_such_overload()
    return replace(check, kind=kind, asked=replace(check.asked, **part))


def _refining(part: str) -> Callable[[Any, Any], CheckValue]:
    return lambda check, text: _refined(check, "resource", **{part: text})


def _check(check: Any, verb: Any) -> AccessDecision:
    if type(check) is not CheckValue or check.kind == "group" or type(verb) is not str:
        raise no_such_overload()
    return check.decide(replace(check.asked, verb=verb))


def _decided(part: Callable[[AccessDecision], Any]) -> Callable[[Any], Any]:
    def found(decision: Any) -> Any:
        if type(decision) is not AccessDecision:
            raise no_such_overload()
        return part(decision)

    return found


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "path": _path,
    "group": _group,
    "serviceAccount": _service_account,
    "resource": _resource,
    "subresource": _refining("subresource"),
    "namespace": _refining("namespace"),
    "name": _refining("name"),
    "fieldSelector": _refining("field_selector"),
    "labelSelector": _refining("label_selector"),
    "check": _check,
    "errored": _decided(lambda decision: bool(decision.error)),
    "error": _decided(lambda decision: decision.error),
    "allowed": _decided(lambda decision: decision.allowed),
    "reason": _decided(lambda decision: decision.reason),
}

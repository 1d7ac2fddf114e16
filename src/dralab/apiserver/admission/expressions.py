"""CEL about a write: the variables of match conditions and policies, and how much they may cost.

Source: k8s.io/apiserver `pkg/admission/plugin/cel` and `pkg/admission/plugin/policy`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol

from dralab import cel
from dralab.api.kinds import Kind
from dralab.apiserver.admission.chain import Review
from dralab.apiserver.admission.matching import namespace_of
from dralab.cel import types
from dralab.cel.bounds import bound
from dralab.cel.environment import Environment
from dralab.cel.functions import authorizer as access
from dralab.cel.functions.authorizer import AuthorizerValue, Decide
from dralab.cel.json_values import from_json
from dralab.cel.library import overloads
from dralab.cel.program import FAILURES
from dralab.cel.types import CelType
from dralab.cel.values import Map

# Cost units for one expression, and for all of one policy (k8s.io/apiserver `pkg/apis/cel`).
PER_CALL: Final = 1_000_000
PER_POLICY: Final = 10_000_000
PER_MATCHER: Final = 2_500_000
TEXTS: Final = types.map_of(types.STRING, types.STRING)
KIND: Final = CelType("struct", "kubernetes.GroupVersionKind")
RESOURCE: Final = CelType("struct", "kubernetes.GroupVersionResource")
USER: Final = CelType("struct", "kubernetes.UserInfo")
REQUEST: Final = CelType("struct", "kubernetes.AdmissionRequest")
NAMESPACE: Final = CelType("struct", "kubernetes.Namespace")
NAMESPACE_META: Final = CelType("struct", "kubernetes.NamespaceMetadata")
NAMESPACE_SPEC: Final = CelType("struct", "kubernetes.NamespaceSpec")
NAMESPACE_STATUS: Final = CelType("struct", "kubernetes.NamespaceStatus")
VARIABLES: Final = CelType("struct", "kubernetes.variables")
STRUCTS: Final[Mapping[str, Mapping[str, CelType]]] = {
    KIND.name: dict.fromkeys(("group", "version", "kind"), types.STRING),
    RESOURCE.name: dict.fromkeys(("group", "version", "resource"), types.STRING),
    USER.name: {
        "username": types.STRING,
        "uid": types.STRING,
        "groups": types.list_of(types.STRING),
        "extra": types.map_of(types.STRING, types.list_of(types.STRING)),
    },
    REQUEST.name: {
        "kind": KIND,
        "resource": RESOURCE,
        "subResource": types.STRING,
        "requestKind": KIND,
        "requestResource": RESOURCE,
        "requestSubResource": types.STRING,
        "name": types.STRING,
        "namespace": types.STRING,
        "operation": types.STRING,
        "userInfo": USER,
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
    NAMESPACE.name: {
        "metadata": NAMESPACE_META,
        "spec": NAMESPACE_SPEC,
        "status": NAMESPACE_STATUS,
    },
    NAMESPACE_META.name: {
        **dict.fromkeys(
            ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp"),
            types.STRING,
        ),
        "deletionTimestamp": types.STRING,
        "generation": types.INT,
        "deletionGracePeriodSeconds": types.INT,
        "labels": TEXTS,
        "annotations": TEXTS,
        "finalizers": types.list_of(types.STRING),
    },
    NAMESPACE_SPEC.name: {"finalizers": types.list_of(types.STRING)},
    NAMESPACE_STATUS.name: {"phase": types.STRING},
}


@lru_cache(maxsize=16)
def environment(
    *, params: bool = False, namespace: bool = False, variables: bool = False
) -> Environment:
    """Return the environment of match conditions; with more of it, that of policies."""
    declared = {
        "object": types.DYN,
        "oldObject": types.DYN,
        "request": REQUEST,
        "authorizer": types.AUTHORIZER,
        "authorizer.requestResource": types.RESOURCE_CHECK,
    }
    if params:
        declared["params"] = types.DYN
    if namespace:
        declared["namespaceObject"] = NAMESPACE
    structs = dict(STRUCTS)
    if variables:
        declared["variables"] = VARIABLES
        structs[VARIABLES.name] = {}
    return cel.kubernetes().extended(
        variables=declared, structs=structs, functions=overloads(access.SIGNATURES)
    )


class Variables(Protocol):
    """What an expression is evaluated with."""

    @property
    def size(self) -> tuple[int, int]:
        """How many parts they have, and the length of the longest text in them."""
        ...

    def named(self, name: str) -> Any:
        """Return a variable by its name in expressions."""
        ...


class ReviewValues:
    """The variables of one write in one version, each made when it is first used."""

    def __init__(
        self,
        review: Review,
        kind: Kind,
        *,
        shown: Callable[[Kind, Mapping[str, Any]], Mapping[str, Any]],
        decide: Decide,
    ) -> None:
        self._review = review
        self._kind = kind
        self._shown = shown
        self._decide = decide

    @cached_property
    def object(self) -> Any:
        """The variable `object`; null for a deletion."""
        return self._value(self._review.value)

    @cached_property
    def old(self) -> Any:
        """The variable `oldObject`; null for a creation."""
        return self._value(self._review.old)

    @cached_property
    def request(self) -> Map:
        """The variable `request`."""
        found: Map = from_json(request_of(self._review, self._kind))
        return found

    @cached_property
    def namespace(self) -> Any:
        """The variable `namespaceObject`; null for what is in no namespace."""
        name = self._review.namespace
        if not name:
            return None
        found = namespace_of(self._review, name)
        return from_json({part: found[part] for part in NAMESPACE_PARTS if part in found})

    @cached_property
    def authorizer(self) -> AuthorizerValue:
        """The variable `authorizer`."""
        return AuthorizerValue(decide=self._decide)

    @cached_property
    def request_resource(self) -> access.CheckValue:
        """What `authorizer.requestResource` is: a question about the object of the write."""
        review = self._review
        asked = access.AccessCheck(
            group=review.kind.group,
            resource=review.kind.plural,
            subresource=review.subresource,
            namespace=review.namespace,
            name=review.given_name,
        )
        return access.CheckValue(decide=self._decide, kind="resource", asked=asked)

    @cached_property
    def size(self) -> tuple[int, int]:
        """How many parts the objects have, and the length of the longest text."""
        return measured(self.object, self.old)

    def named(self, name: str) -> Any:
        """Return a variable by its name in expressions."""
        return getattr(self, ATTRIBUTES[name])

    def _value(self, obj: Mapping[str, Any] | None) -> Any:
        return None if obj is None else from_json(self._shown(self._kind, obj))


ATTRIBUTES: Final[Mapping[str, str]] = {
    "object": "object",
    "oldObject": "old",
    "request": "request",
    "namespaceObject": "namespace",
    "authorizer": "authorizer",
    "authorizer.requestResource": "request_resource",
}
NAMESPACE_PARTS: Final = ("metadata", "spec", "status")


def measured(*values: Any) -> tuple[int, int]:
    """Return how many parts values have, and the length of the longest text in them."""
    parts = longest = 0
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        parts += 1
        kind = type(value)
        if kind is str:
            longest = max(longest, len(value))
        elif kind is list:
            waiting += value
        elif isinstance(value, dict):
            parts += len(value)
            waiting += value.values()
    return parts, longest


def request_of(review: Review, kind: Kind) -> dict[str, Any]:
    """Return a write as an AdmissionRequest tells of it, without its uid and objects.

    `kind` is the version in which it is shown.
    """
    asked = review.kind
    namespace = review.namespace
    name = review.name
    if asked.hub == "namespaces":
        namespace = name = review.given_name if review.operation == "CREATE" else name
    elif review.operation == "CREATE" and not name and not review.subresource:
        name = ((review.value or {}).get("metadata") or {}).get("name") or ""
    found: dict[str, Any] = {
        "kind": _kind(review, kind),
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
    }
    if review.subresource:
        found["subResource"] = review.subresource
    found["requestKind"] = _kind(review, asked)
    found["requestResource"] = {
        "group": asked.group,
        "version": asked.version,
        "resource": asked.plural,
    }
    if review.subresource:
        found["requestSubResource"] = review.subresource
    if name:
        found["name"] = name
    if namespace:
        found["namespace"] = namespace
    found["operation"] = review.operation
    found["userInfo"] = review.user.info
    found["dryRun"] = review.dry_run
    found["options"] = review.options() or None
    return found


def _kind(review: Review, kind: Kind) -> dict[str, str]:
    group, version, name = review.form or (kind.group, kind.version, kind.kind)
    return {"group": group, "version": version, "kind": name}


class Expression:
    """One compiled expression of an environment. CompileError."""

    def __init__(self, text: str, within: Environment) -> None:
        self.text = text
        self.program = cel.compile_expression(text.strip(), within)
        self._names = tuple(sorted(within.variables))
        self._needs = tuple(sorted({path[0] for path in self.program.paths}))
        self._bound = bound(self.program.tree)

    def value(self, variables: Variables, left: int = PER_CALL) -> tuple[Any, int]:
        """Return the value, which is a CelError if it is one, and its cost.

        Where nothing on this input costs more than is `left`, generated code finds the value.
        """
        needed = {name: variables.named(name) for name in self._needs}
        if self._bound is not None and self.program.fast is not None:
            most = self._bound.of(*variables.size)
            if most <= min(left, PER_CALL):
                try:
                    return self.program.fast(*map(needed.get, self._names)), most
                except FAILURES:
                    pass  # the exact evaluation decides
        return self.program.outcome(needed, PER_CALL)

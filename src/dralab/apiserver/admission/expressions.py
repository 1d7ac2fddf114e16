"""CEL about a write: the variables of match conditions and policies, and how much they may cost.

Source: k8s.io/apiserver `pkg/admission/plugin/cel` and `pkg/admission/plugin/policy`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from dralab import cel
from dralab.api.kinds import Kind
from dralab.apiserver.admission.chain import Review
from dralab.apiserver.admission.matching import namespace_of
from dralab.apiserver.outgoing.waiting import MustWait
from dralab.cel import types
from dralab.cel.bounds import bound
from dralab.cel.environment import Environment
from dralab.cel.functions import authorizer as access
from dralab.cel.functions.authorizer import AuthorizerValue, Decide
from dralab.cel.json_values import Converted, from_json
from dralab.cel.library import overloads
from dralab.cel.program import FAILURES
from dralab.cel.types import CelType

# Cost units for one expression, and for all of one policy (k8s.io/apiserver `pkg/apis/cel`).
MANAGED: Final = ("metadata", "managedFields")
PER_CALL: Final = 1_000_000
PER_POLICY: Final = 10_000_000
PER_MATCHER: Final = 2_500_000
BRIEF: Final = 10_000  # cost units that take about 30 ms
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
def environment(*, params: bool = False, variables: bool = False) -> Environment:
    """Return the environment of match conditions; with more of it, that of policies."""
    declared = {
        "object": types.DYN,
        "oldObject": types.DYN,
        "request": REQUEST,
        "namespaceObject": NAMESPACE,
        "authorizer": types.AUTHORIZER,
        "authorizer.requestResource": types.RESOURCE_CHECK,
    }
    if params:
        declared["params"] = types.DYN
    structs = dict(STRUCTS)
    if variables:
        declared["variables"] = VARIABLES
        structs[VARIABLES.name] = {}
    return cel.served().extended(
        variables=declared, structs=structs, functions=overloads(access.SIGNATURES)
    )


class Variables(Protocol):
    """What an expression is evaluated with."""

    @property
    def size(self) -> tuple[int, int]:
        """The number of parts, and the length of the longest text."""
        ...

    @property
    def brief(self) -> "BriefBudget | None":
        """The budget while other requests wait; None if no request waits."""
        ...

    def named(self, name: str, *, whole: bool = True) -> Any:
        """Return a variable by its name in expressions; unless `whole`, without managed fields."""
        ...


class BriefBudget:
    """Cost units that one write may spend while all other requests wait for it."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BRIEF

    def spend(self, cost: int) -> None:
        """Count cost units. MustWait if they are too many: the write is for another thread."""
        self.left -= cost
        if self.left < 0:
            raise MustWait


class ReviewValues:
    """The variables of one write in one version, each made when it is first used."""

    __slots__ = ("_decide", "_found", "_kind", "_named", "_review", "_shown", "_size", "brief")

    def __init__(
        self,
        review: Review,
        kind: Kind,
        *,
        shown: Callable[[Kind, Mapping[str, Any]], Mapping[str, Any]],
        decide: Decide,
        named: bool = True,
    ) -> None:
        self._review = review
        self._named = named
        self._kind = kind
        # What stands for a part of an object, such as a Scale, is of its own kind already.
        self._shown = shown if review.form is None else _as_it_is
        self._decide = decide
        self._found: dict[str, Any] = {}
        self._size: tuple[int, int] | None = None
        self.brief = None if review.may_wait else brief_of(review)

    @property
    def size(self) -> tuple[int, int]:
        """The number of parts of the objects, and the length of the longest text."""
        if self._size is None:
            new, old = self._converted(self._review.value), self._converted(self._review.old)
            self._found["light object"], self._found["light oldObject"] = new.value, old.value
            self._size = (new.parts + old.parts, max(new.longest, old.longest))
        return self._size

    def named(self, name: str, *, whole: bool = True) -> Any:
        """Return a variable by its name in expressions; unless `whole`, without managed fields."""
        key = name
        if not whole and name in LIGHT:
            key = LIGHT[name]
            if self._size is None:
                return (self.size, self._found[key])[1]
        try:
            return self._found[key]
        except KeyError:
            found = self._found[key] = MAKERS[name](self)
            return found

    def _converted(self, obj: Mapping[str, Any] | None) -> Converted:
        """Return an object without managed fields, which are large and rarely asked for."""
        if obj is None:
            return Converted(None)
        shown = self._shown(self._kind, obj)
        meta = shown.get("metadata")
        if meta and "managedFields" in meta:
            meta = {part: item for part, item in meta.items() if part != "managedFields"}
            shown = {**shown, "metadata": meta}
        return Converted(shown)

    def _whole(self, obj: Mapping[str, Any] | None) -> Any:
        return None if obj is None else from_json(self._shown(self._kind, obj))

    def _object(self) -> Any:
        return self._whole(self._review.value)

    def _old(self) -> Any:
        return self._whole(self._review.old)

    def _request(self) -> Any:
        return from_json(request_of(self._review, self._kind))

    def _namespace(self) -> Any:
        name = self._review.namespace
        if not name or not self._named:
            return None
        found = namespace_of(self._review, name)
        return from_json({part: found[part] for part in NAMESPACE_PARTS if part in found})

    def _authorizer(self) -> AuthorizerValue:
        return AuthorizerValue(decide=self._decide)

    def _request_resource(self) -> access.CheckValue:
        review = self._review
        asked = access.AccessCheck(
            group=review.kind.group,
            resource=review.kind.plural,
            subresource=review.subresource,
            namespace=review.namespace,
            name=review.given_name,
        )
        return access.CheckValue(decide=self._decide, kind="resource", asked=asked)

    makers: ClassVar[Mapping[str, Callable[["ReviewValues"], Any]]] = {
        "object": _object,
        "oldObject": _old,
        "request": _request,
        "namespaceObject": _namespace,
        "authorizer": _authorizer,
        "authorizer.requestResource": _request_resource,
    }


MAKERS: Final = ReviewValues.makers
LIGHT: Final = {"object": "light object", "oldObject": "light oldObject"}


def brief_of(review: Review) -> BriefBudget:
    """Return the budget of all expressions about one write while other requests wait."""
    found: BriefBudget = review.memory.setdefault("brief", BriefBudget())
    return found


NAMESPACE_PARTS: Final = ("metadata", "spec", "status")


def _as_it_is(_kind: Kind, value: Mapping[str, Any]) -> Mapping[str, Any]:
    return value


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
    """Return the AdmissionRequest for a write, without uid and objects.

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


def _reads_managed_fields(path: Sequence[str]) -> bool:
    return path[0] in {"object", "oldObject"} and (*path[1:3], *MANAGED)[:2] == MANAGED


class Expression:
    """One compiled expression of an environment. CompileError."""

    __slots__ = ("_arguments", "_bound", "_fast", "_needs", "_whole", "program", "text")

    def __init__(self, text: str, within: Environment) -> None:
        self.text = text
        self.program = cel.compile_expression(text.strip(), within)
        needs = {path[0] for path in self.program.paths}
        self._needs = tuple(sorted(needs))
        # The generated code takes all variables, also those that it does not use.
        self._arguments = tuple(
            name if name in needs else None for name in sorted(within.variables)
        )
        self._whole = any(map(_reads_managed_fields, self.program.paths))
        self._bound = bound(self.program.tree)
        self._fast = self.program.fast if self._bound is not None else None

    def value(self, variables: Variables, left: int = PER_CALL) -> tuple[Any, int]:
        """Return the value, which is a CelError if it is one, and its cost. MustWait.

        Where nothing on this input costs more than is `left`, generated code finds the value.
        """
        whole, named = self._whole, variables.named
        if self._fast is not None and self._bound is not None:
            most = self._bound.of(*variables.size)
            if most <= left and most <= PER_CALL:
                try:
                    return self._fast(
                        *[name and named(name, whole=whole) for name in self._arguments]
                    ), most
                except FAILURES:
                    pass  # the exact evaluation decides
        needed = {name: named(name, whole=whole) for name in self._needs}
        brief = variables.brief
        if brief is None:
            return self.program.outcome(needed, PER_CALL)
        found, cost = self.program.outcome(needed, min(PER_CALL, brief.left))
        brief.spend(cost)
        return found, cost

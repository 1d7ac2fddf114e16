"""CEL about a write: the variables of match conditions and policies, and how much they may cost.

Source: k8s.io/apiserver `pkg/admission/plugin/cel` and `pkg/admission/plugin/policy`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from dralab import cel
from dralab.api.kinds import Kind
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.admission.forms import Forms, shown_for
from dralab.apiserver.access.admission.matching import namespace_of
from dralab.apiserver.access.scope import RequestScope
from dralab.cel import types
from dralab.cel.bounds import bound
from dralab.cel.environment import Environment
from dralab.cel.functions import authorizer as access
from dralab.cel.functions.authorizer import AuthorizerValue
from dralab.cel.json_values import Converted, from_json
from dralab.cel.library import overloads
from dralab.cel.program import FAILURES
from dralab.cel.types import CelType
from dralab.values.remembering import KnownValues, json_key

# Cost units for one expression, and for all of one policy (k8s.io/apiserver `pkg/apis/cel`).
MANAGED: Final = ("metadata", "managedFields")
SPEC: Final = ("object", "spec")
SpecKey = tuple[Kind, bytes]
KEPT: Final = 128  # specs of which an expression is known to be true
PER_CALL: Final = 1_000_000
PER_POLICY: Final = 10_000_000
PER_MATCHER: Final = 2_500_000
# Cost units of one write that any thread may spend, about 10 ms; beyond it is for one with a turn.
BRIEF: Final = 3_000
GENERATED: Final = 1_000  # times as much as it costs is the bound of what generated code finds
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
    def budget(self) -> "BriefBudget":
        """What the expressions about a write may cost before they are long work."""
        ...

    @property
    def spec_key(self) -> "SpecKey | None":
        """What is equal for objects with equal specs; None where that is not known."""
        ...

    def named(self, name: str, *, whole: bool = True) -> Any:
        """Return a variable by its name in expressions; unless `whole`, without managed fields."""
        ...


class BriefBudget:
    """Cost units that the expressions about one write may spend beside those of others."""

    __slots__ = ("left", "scope")

    def __init__(self, scope: RequestScope) -> None:
        self.left = BRIEF
        self.scope = scope


class ReviewValues:
    """The variables of one write in one version, each made when it is first used."""

    __slots__ = ("_forms", "_found", "_kind", "_named", "_review", "_size", "_spec_key", "budget")

    def __init__(
        self,
        review: Review,
        kind: Kind,
        forms: Forms,
        *,
        named: bool = True,
    ) -> None:
        self._review = review
        self._named = named
        self._kind = kind
        self._forms = forms
        self._found: dict[str, Any] = {}
        self._size: tuple[int, int] | None = None
        self._spec_key: SpecKey | None = None
        self.budget: BriefBudget = review.memory.setdefault("budget", BriefBudget(review.scope))

    @property
    def spec_key(self) -> "SpecKey | None":
        """What is equal for objects with equal specs; None where that is not known."""
        if self._spec_key is None and self._review.form is None and self._review.value is not None:
            text = json_key(self._review.value.get("spec"))
            self._spec_key = None if text is None else (self._kind, text)
        return self._spec_key

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
        shown = shown_for(self._review, self._kind, obj, self._forms)
        meta = shown.get("metadata")
        if meta and "managedFields" in meta:
            meta = {part: item for part, item in meta.items() if part != "managedFields"}
            shown = {**shown, "metadata": meta}
        return Converted(shown)

    def _whole(self, obj: Mapping[str, Any] | None) -> Any:
        return from_json(shown_for(self._review, self._kind, obj, self._forms))

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
        return AuthorizerValue(decide=self._forms.decide(self._review))

    def _request_resource(self) -> access.CheckValue:
        review = self._review
        asked = access.AccessCheck(
            group=review.kind.group,
            resource=review.kind.plural,
            subresource=review.subresource,
            namespace=review.namespace,
            name=review.given_name,
        )
        return access.CheckValue(
            decide=self._forms.decide(self._review), kind="resource", asked=asked
        )

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


NO_VALUE: Final = object()
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
    found["dryRun"] = review.options.dry_run
    found["options"] = review.options.as_reviewed(review.operation) or None
    return found


def _kind(review: Review, kind: Kind) -> dict[str, str]:
    group, version, name = review.form or (kind.group, kind.version, kind.kind)
    return {"group": group, "version": version, "kind": name}


def _reads_managed_fields(path: Sequence[str]) -> bool:
    return path[0] in {"object", "oldObject"} and (*path[1:3], *MANAGED)[:2] == MANAGED


class Expression:
    """One compiled expression of an environment. CompileError."""

    __slots__ = ("_arguments", "_bound", "_fast", "_known", "_needs", "_whole", "program", "text")

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
        # Equal values at all paths give equal results: most pods are copies of a few. What was
        # true of a spec is not asked again, and costs what it did.
        of_spec = all(path[:2] == SPEC for path in self.program.paths)
        self._known = KnownValues[SpecKey, int](most=KEPT) if of_spec else None

    def value(self, variables: Variables, left: int = PER_CALL) -> tuple[Any, int]:
        """Return the value, which may be a CelError, and its cost.

        Where nothing on this input costs more than is `left`, generated code finds the value.
        What costs more than the budget for the write is found in a turn. MustCompute, ApiError.
        """
        if self._known is None:
            return self._found(variables, left)
        key = variables.spec_key
        known = self._known.get(key)
        if known is not None and known <= left:
            return True, known
        found, cost = self._found(variables, left)
        if found is True:
            self._known.keep(key, cost)
        return found, cost

    def _found(self, variables: Variables, left: int) -> tuple[Any, int]:
        most = self._bound.of(*variables.size) if self._bound is not None else PER_CALL + 1
        is_bounded = most <= left and most <= PER_CALL
        budget = variables.budget
        if is_bounded and budget.left > 0:
            budget.left -= most // GENERATED
            if (found := self._generated(variables)) is not NO_VALUE:
                return found, most
        if budget.left > 0:
            found, cost = self.program.outcome(self._needed(variables), min(PER_CALL, budget.left))
            budget.left -= cost
            if budget.left >= 0:
                return found, cost
        with budget.scope.long_work():
            if is_bounded and (found := self._generated(variables)) is not NO_VALUE:
                return found, most
            return self.program.outcome(self._needed(variables), PER_CALL)

    def _generated(self, variables: Variables) -> Any:
        """Return the value that generated code computes; NO_VALUE: it has to be interpreted."""
        if self._fast is None:
            return NO_VALUE
        named, whole = variables.named, self._whole
        try:
            return self._fast(*[name and named(name, whole=whole) for name in self._arguments])
        except FAILURES:
            return NO_VALUE

    def _needed(self, variables: Variables) -> dict[str, Any]:
        return {name: variables.named(name, whole=self._whole) for name in self._needs}

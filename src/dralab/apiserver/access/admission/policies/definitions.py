"""Policies and their bindings, compiled when they are stored.

Source: k8s.io/apiserver `admission/plugin/policy`, `admission/plugin/cel`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from dralab import cel
from dralab.api.kinds import Kinds
from dralab.apiserver.access.admission.conditions import MatchConditions
from dralab.apiserver.access.admission.expressions import VARIABLES, Expression, environment
from dralab.apiserver.access.admission.matching import Criteria
from dralab.cel import types
from dralab.cel.environment import Environment
from dralab.cel.functions.patches import SIGNATURES
from dralab.cel.library import overloads
from dralab.cel.types import CelType
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

OBJECT: Final = CelType("struct", "Object")
JSON_PATCH: Final = CelType("struct", "JSONPatch")
PATCH_FIELDS: Final = {
    "op": types.STRING,
    "path": types.STRING,
    "from": types.STRING,
    "value": types.DYN,
}
Compiled = Expression | cel.CompileError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Validation:
    """One validation; `message` is used if there is no message expression, or it fails."""

    expression: Compiled
    text: str
    message: str
    message_expression: Compiled | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mutation:
    """One mutation; with `patches` its expression returns a JSON patch."""

    expression: Compiled
    patches: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdmissionPolicy:
    """Common parts of both sorts of policies; `variables` are in their declared order."""

    name: str
    param_kind: tuple[str, str] | None
    criteria: Criteria
    conditions: MatchConditions
    variables: Mapping[str, Compiled]
    ignores_failures: bool
    validations: Sequence[Validation] = ()
    annotations: Sequence[tuple[str, Compiled]] = ()
    mutations: Sequence[Mutation] = ()
    reinvoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyBinding:
    """Where a policy applies, with which parameters; `actions` are for failed validations."""

    name: str
    policy: str
    criteria: Criteria
    params: Mapping[str, Any] | None
    actions: Sequence[str]


def policy_environment(
    *, params: bool, variables: bool = True, mutating: bool = False
) -> Environment:
    """Return the environment of a policy's expressions, without its own variables.

    A policy that has no `variables` does not know the name.
    """
    found = environment(params=params, variables=variables)
    if not mutating:
        return found
    return found.extended(
        functions=overloads(SIGNATURES),
        structs={JSON_PATCH.name: PATCH_FIELDS},
        messages=frozenset({JSON_PATCH.name}),
        open_message=OBJECT.name,
    )


def read_policy(policy: JsonDict, kinds: Kinds, *, mutating: bool) -> AdmissionPolicy:
    """Return a stored policy. An expression that does not compile is kept as its error."""
    spec = policy.get("spec") or {}
    constraints = spec.get("matchConstraints") or {}
    param = spec.get("paramKind")
    base = policy_environment(
        params=param is not None, variables=bool(spec.get("variables")), mutating=mutating
    )
    variables, within = read_variables(spec, base)
    return AdmissionPolicy(
        name=policy["metadata"]["name"],
        param_kind=(param.get("apiVersion") or "", param.get("kind") or "") if param else None,
        criteria=Criteria(
            kinds,
            constraints,
            constraints.get("resourceRules") or ({},),
            constraints.get("excludeResourceRules") or (),
        ),
        conditions=MatchConditions(
            spec.get("matchConditions") or (),
            environment(params=param is not None),
        ),
        variables=variables,
        ignores_failures=spec.get("failurePolicy") == "Ignore",
        validations=[_validation(each, within) for each in spec.get("validations") or ()],
        annotations=[
            (str(each.get("key")), compiled(each.get("valueExpression"), within))
            for each in spec.get("auditAnnotations") or ()
        ],
        mutations=[_mutation(each, within) for each in spec.get("mutations") or ()],
        reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
    )


def for_messages(within: Environment) -> Environment:
    """Return the environment of message expressions, which may not ask an authorizer."""
    names = within.variables.items()
    return replace(
        within,
        variables={name: type_ for name, type_ in names if not name.startswith("authorizer")},
    )


def read_variables(
    spec: Mapping[str, Any], base: Environment
) -> tuple[dict[str, Compiled], Environment]:
    """Return the variables of a policy, and the environment in which they are all declared.

    Each may use those before it.
    """
    found: dict[str, Compiled] = {}
    known: dict[str, CelType] = {}
    within = base
    for each in spec.get("variables") or ():
        name = str(each.get("name"))
        expression = found[name] = compiled(each.get("expression"), within)
        known[name] = expression.program.type if isinstance(expression, Expression) else types.DYN
        within = base.extended(structs={VARIABLES.name: known})
    return found, within


def read_binding(binding: JsonDict, kinds: Kinds) -> PolicyBinding:
    """Return a stored binding."""
    spec = binding.get("spec") or {}
    match = spec.get("matchResources") or {}
    return PolicyBinding(
        name=binding["metadata"]["name"],
        policy=spec.get("policyName") or "",
        criteria=Criteria(
            kinds,
            match,
            match.get("resourceRules") or (),
            match.get("excludeResourceRules") or (),
        ),
        params=spec.get("paramRef"),
        actions=spec.get("validationActions") or (),
    )


def compiled(text: Any, within: Environment) -> Compiled:
    """Return a compiled expression, or the error that explains why it does not compile."""
    try:
        return Expression(str(text or ""), within)
    except cel.CompileError as error:
        return error


def _validation(each: Mapping[str, Any], within: Environment) -> Validation:
    by_expression = each.get("messageExpression")
    return Validation(
        expression=compiled(each.get("expression"), within),
        text=str(each.get("expression") or "").strip(),
        message=str(each.get("message") or "").strip(),
        message_expression=compiled(by_expression, within) if by_expression else None,
        reason=each.get("reason") or "Invalid",
    )


def _mutation(each: Mapping[str, Any], within: Environment) -> Mutation:
    patches = each.get("patchType") == "JSONPatch"
    given = each.get("jsonPatch" if patches else "applyConfiguration") or {}
    return Mutation(expression=compiled(given.get("expression"), within), patches=patches)


@dataclass
class Policies:
    """The policies of one sort with their bindings, by name."""

    kinds: Kinds
    mutating: bool
    all: Sequence[tuple[AdmissionPolicy, Sequence[PolicyBinding]]] = ()
    _policies: dict[str, AdmissionPolicy] = field(default_factory=dict)
    _bindings: dict[str, PolicyBinding] = field(default_factory=dict)

    def reset_policies(self, policies: Sequence[JsonDict]) -> None:
        """Replace all policies."""
        self._policies = {
            each["metadata"]["name"]: read_policy(each, self.kinds, mutating=self.mutating)
            for each in policies
        }
        self._order()

    def reset_bindings(self, bindings: Sequence[JsonDict]) -> None:
        """Replace all bindings."""
        self._bindings = {
            each["metadata"]["name"]: read_binding(each, self.kinds) for each in bindings
        }
        self._order()

    def policy_changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Update the policies after one was written or deleted."""
        if after is not None:
            if before is None or before.get("spec") != after.get("spec"):
                name = after["metadata"]["name"]
                self._policies[name] = read_policy(after, self.kinds, mutating=self.mutating)
        elif before is not None:
            self._policies.pop(before["metadata"]["name"], None)
        self._order()

    def binding_changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Update the bindings after one was written or deleted."""
        if after is not None:
            self._bindings[after["metadata"]["name"]] = read_binding(after, self.kinds)
        elif before is not None:
            self._bindings.pop(before["metadata"]["name"], None)
        self._order()

    def _order(self) -> None:
        by_policy: dict[str, list[PolicyBinding]] = {}
        for name in sorted(self._bindings):
            binding = self._bindings[name]
            by_policy.setdefault(binding.policy, []).append(binding)
        self.all = tuple(
            (self._policies[name], by_policy[name])
            for name in sorted(self._policies)
            if name in by_policy
        )

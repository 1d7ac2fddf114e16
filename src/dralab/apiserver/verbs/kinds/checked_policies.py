"""Checks of admission policies and their bindings before they are stored.

Source of rules and words: k8s.io/kubernetes `pkg/apis/admissionregistration/validation`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dralab.api import fields
from dralab.api.conditions import condition_errors
from dralab.api.core.access import any_name
from dralab.api.core.policies import AdmissionPolicyStrategy
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from dralab.cel.environment import Environment
    from dralab.cel.types import CelType

OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MUTATING_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
ACTIONS: Final = ("Audit", "Deny", "Warn")
IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
LONGEST_VALUE: Final = 5 * 1024
MOST_CONDITIONS: Final = 64
MOST_ANNOTATIONS: Final = 20
NOTHING_TO_DO: Final = "validations or auditAnnotations must contain at least one item"


class CheckedPolicies(AdmissionPolicyStrategy):
    """Policies, whose expressions must compile."""

    def __init__(self, *, mutating: bool) -> None:
        self.mutating = mutating

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a policy."""
        return list(_policy_problems(value, mutating=self.mutating))

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return the errors of the warnings and conditions; what a path says is not read."""
        status, found = new.get("status") or {}, []
        warnings = (status.get("typeChecking") or {}).get("expressionWarnings") or ()
        for index, warning in enumerate(warnings):
            at = f"status.typeChecking.expressionWarnings[{index}]"
            found += [
                fields.required(f"{at}.{part}")
                for part in ("warning", "fieldRef")
                if not (warning.get(part) or "").strip()
            ]
        return found + condition_errors(status.get("conditions"), "status.conditions")


class CheckedBindings(AdmissionPolicyStrategy):
    """Bindings of policies."""

    def __init__(self, *, mutating: bool) -> None:
        self.mutating = mutating

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        super().default(value)
        value["spec"].pop("failurePolicy", None)  # which only policies have

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a binding."""
        spec = value.get("spec") or {}
        found = []
        if not (name := spec.get("policyName")):
            found.append(fields.required("spec.policyName"))
        else:
            found += [
                fields.invalid_value("spec.policyName", name, why)
                for why in names.subdomain_problems(name)
            ]
        found += _param_ref_problems(spec.get("paramRef"), "spec.paramRef")
        found += _match_problems(spec.get("matchResources"), "spec.matchResources")
        if self.mutating:
            found += _operation_problems(spec.get("matchResources"), "spec.matchResources")
        else:
            found += _action_problems(spec.get("validationActions") or (), "spec.validationActions")
        return found


def _policy_problems(policy: JsonDict, *, mutating: bool) -> Iterator[FieldError]:
    from dralab.apiserver.access.admission.expressions import environment
    from dralab.apiserver.access.admission.policies.definitions import (
        policy_environment,
        read_variables,
    )

    spec = policy.get("spec") or {}
    if spec.get("failurePolicy") not in {"Fail", "Ignore"}:
        known = ["Fail", "Ignore"]
        yield fields.not_supported("spec.failurePolicy", spec.get("failurePolicy"), known)
    params = spec.get("paramKind")
    if params is not None:
        yield from _param_kind_problems(params, "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield fields.required("spec.matchConstraints")
    else:
        yield from _match_problems(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield fields.required("spec.matchConstraints.resourceRules")
        if mutating:
            yield from _operation_problems(constraints, "spec.matchConstraints")
    conditions = spec.get("matchConditions") or ()
    yield from condition_problems(
        conditions, "spec.matchConditions", environment(params=params is not None)
    )
    base = policy_environment(
        params=params is not None, variables=bool(spec.get("variables")), mutating=mutating
    )
    yield from _variable_problems(spec, base)
    _, within = read_variables(spec, base)
    if mutating:
        yield from _mutation_problems(spec, within)
    else:
        yield from _validation_problems(policy, spec, within)


def _param_kind_problems(params: JsonObject, path: str) -> Iterator[FieldError]:
    version, kind = params.get("apiVersion") or "", params.get("kind") or ""
    at = f"{path}.apiVersion"
    group, _, number = version.rpartition("/")
    if not version:
        yield fields.required(at)
    elif version.count("/") > 1:
        yield fields.invalid_value(at, version, f"unexpected GroupVersion string: {version}")
    else:
        if group and (problems := names.subdomain_problems(group)):
            yield fields.invalid_value(at, group, ",".join(problems))
        if not number:
            yield fields.invalid_value(at, version, "version must be specified")
        elif problems := names.label_1035_problems(number):
            yield fields.invalid_value(at, number, ",".join(problems))
    if not kind:
        yield fields.required(f"{path}.kind")
    elif problems := names.label_1035_problems(kind.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        yield fields.invalid_value(f"{path}.kind", kind, why)


def condition_problems(
    conditions: Sequence[JsonObject], path: str, within: "Environment"
) -> Iterator[FieldError]:
    """Yield the errors of match conditions."""
    from dralab.cel.types import BOOL

    if len(conditions) > MOST_CONDITIONS:
        yield fields.too_many(path, len(conditions), MOST_CONDITIONS)
    seen = set()
    for index, each in enumerate(conditions):
        where = f"{path}[{index}]"
        yield from _expression_problems(each, "expression", where, within, (BOOL,), missing="")
        name = each.get("name")
        if not name:
            yield fields.required(f"{where}.name")
        else:
            for why in names.qualified_problems(name):
                yield fields.invalid_value(f"{where}.name", name, why)
            if name in seen:
                yield fields.duplicate(f"{where}.name", name)
            seen.add(name)


def _variable_problems(spec: JsonObject, base: "Environment") -> Iterator[FieldError]:
    from dralab.apiserver.access.admission.policies.definitions import read_variables

    variables = spec.get("variables") or ()
    for index, each in enumerate(variables):
        where = f"spec.variables[{index}]"
        name = str(each.get("name") or "").strip()
        if not name:
            yield fields.required(f"{where}.name", "name is not specified")
        elif not IDENTIFIER.fullmatch(name):
            yield fields.invalid_value(f"{where}.name", name, "must be a valid CEL identifier")
        _, within = read_variables({"variables": variables[:index]}, base)
        yield from _expression_problems(each, "expression", where, within, ())


def _validation_problems(
    policy: JsonDict, spec: JsonObject, within: "Environment"
) -> Iterator[FieldError]:
    from dralab.apiserver.access.admission.policies.definitions import for_messages
    from dralab.cel.types import BOOL, NULL, STRING

    messages = for_messages(within)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        yield fields.required("spec.validations", NOTHING_TO_DO)
        yield fields.required("spec.auditAnnotations", NOTHING_TO_DO)
    for index, each in enumerate(validations):
        where = f"spec.validations[{index}]"
        yield from _expression_problems(each, "expression", where, within, (BOOL,))
        if by_expression := each.get("messageExpression"):
            if by_expression.strip():
                yield from _expression_problems(
                    each, "messageExpression", where, messages, (STRING,)
                )
            else:
                why = "must be non-empty if specified"
                yield fields.invalid_value(f"{where}.messageExpression", by_expression, why)
        message = each.get("message")
        if message and not message.strip():
            why = "must be non-empty if specified"
            yield fields.invalid_value(f"{where}.message", message, why)
        elif message and "\n" in message.strip():
            yield fields.invalid_value(f"{where}.message", message, "must not contain line breaks")
        if (reason := each.get("reason")) is not None and reason not in REASONS:
            yield fields.not_supported(f"{where}.reason", reason, REASONS)
    if len(annotations) > MOST_ANNOTATIONS:
        why = f"must not have more than {MOST_ANNOTATIONS} auditAnnotations"
        # By the names that the fields have in Go.
        shown = [
            {"Key": each.get("key") or "", "ValueExpression": each.get("valueExpression") or ""}
            for each in annotations
        ]
        yield fields.invalid_value("spec.auditAnnotations", shown, why)
    seen = set()
    for index, each in enumerate(annotations):
        where = f"spec.auditAnnotations[{index}]"
        key = str(each.get("key") or "")
        name = f"{policy['metadata'].get('name', '')}/{key}"
        for why in names.qualified_problems(name):
            yield fields.invalid_value(f"{where}.key", name, why)
        if len(str(each.get("valueExpression") or "")) > LONGEST_VALUE:
            why = f"must not exceed {LONGEST_VALUE} bytes in length"
            yield fields.required(f"{where}.valueExpression", why)
        else:
            wanted = (STRING, NULL)
            yield from _expression_problems(each, "valueExpression", where, within, wanted)
        if key in seen:
            yield fields.duplicate(f"{where}.key", key)
        seen.add(key)


def _mutation_problems(spec: JsonObject, within: "Environment") -> Iterator[FieldError]:
    from dralab.apiserver.access.admission.policies.definitions import JSON_PATCH, OBJECT
    from dralab.cel.types import list_of

    mutations = spec.get("mutations") or ()
    if not mutations:
        yield fields.required("spec.mutations", "mutations must contain at least one item")
    results = {
        "ApplyConfiguration": ("applyConfiguration", "jsonPatch", OBJECT),
        "JSONPatch": ("jsonPatch", "applyConfiguration", list_of(JSON_PATCH)),
    }
    for index, each in enumerate(mutations):
        where = f"spec.mutations[{index}]"
        kind = each.get("patchType")
        if not kind:
            yield fields.required(f"{where}.patchType")
            continue
        if kind not in results:
            yield fields.not_supported(f"{where}.patchType", kind, list(results))
            continue
        part, other, wanted = results[kind]
        if each.get(part) is None:
            why = f"must be specified when patchType is {kind}"
            yield fields.required(f"{where}.{part}", why)
        else:
            path = f"{where}.{part}"
            yield from _expression_problems(
                each[part], "expression", path, within, (wanted,), missing=""
            )
        if each.get(other) is not None:
            why = f"must not be specified when patchType is {kind}"
            yield fields.invalid_value(f"{where}.{other}", f"{{{other}}}", why)
    policy = spec.get("reinvocationPolicy")
    if not policy:
        yield fields.required("spec.reinvocationPolicy")
    elif policy not in {"Never", "IfNeeded"}:
        yield fields.not_supported("spec.reinvocationPolicy", policy, ["Never", "IfNeeded"])


def _expression_problems(
    holder: Mapping[str, Any],
    part: str,
    path: str,
    within: "Environment",
    wanted: "Sequence[CelType]",
    *,
    missing: str | None = None,
) -> Iterator[FieldError]:
    """Yield the errors of an expression, which must have one of the wanted types."""
    from dralab import cel

    text = str(holder.get(part) or "")
    where = f"{path}.{part}"
    if not text.strip():
        detail = f"{part} is not specified" if missing is None else missing
        yield fields.required(where, detail)
        return
    try:
        found = cel.compile_expression(text.strip(), within).type
    except cel.CompileError as error:
        yield fields.invalid_value(where, text, str(error))
        return
    if wanted and found not in wanted:
        shown = str(wanted[0]) if len(wanted) == 1 else f"one of [{' '.join(map(str, wanted))}]"
        why = f"must evaluate to {shown} but got {found}"
        yield fields.invalid_value(where, text, why)


def _match_problems(match: JsonObject | None, path: str) -> Iterator[FieldError]:
    if match is None:
        return
    if match.get("matchPolicy") not in {"Exact", "Equivalent"}:
        known = ["Equivalent", "Exact"]
        yield fields.not_supported(f"{path}.matchPolicy", match.get("matchPolicy"), known)
    for part in ("namespaceSelector", "objectSelector"):
        if match.get(part):
            yield from label_selector_problems(match[part], f"{path}.{part}")
    for part in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(part) or ()):
            yield from rule_problems(rule, f"{path}.{part}[{index}]", in_policy=True)


def rule_problems(rule: JsonObject, path: str, *, in_policy: bool = False) -> Iterator[FieldError]:
    """Yield the errors of a rule about operations and resources."""
    seen = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        if in_policy:
            for why in any_name(name):
                yield fields.invalid_value(f"{path}.resourceNames[{index}]", name, why)
        if name in seen:
            yield fields.duplicate(f"{path}.resourceNames[{index}]", name)
        seen.add(name)
    operations = rule.get("operations") or ()
    if not operations:
        yield fields.required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        why = "if '*' is present, must not specify other operations"
        yield fields.invalid_value(f"{path}.operations", list(operations), why)
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            yield fields.not_supported(f"{path}.operations[{index}]", operation, OPERATIONS)
    for part, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        given = rule.get(part) or ()
        if not given:
            yield fields.required(f"{path}.{part}")
        if len(given) > 1 and "*" in given:
            why = f"if '*' is present, must not specify other {words}"
            yield fields.invalid_value(f"{path}.{part}", list(given), why)
        for index, text in enumerate(given if part == "apiVersions" else ()):
            if not text:
                yield fields.required(f"{path}.{part}[{index}]")
    yield from _resource_problems(rule.get("resources") or (), f"{path}.resources")
    if rule.get("scope") not in {"*", "Cluster", "Namespaced"}:
        known = ["*", "Cluster", "Namespaced"]
        yield fields.not_supported(f"{path}.scope", rule.get("scope"), known)


def _resource_problems(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    """Yield the errors of the resources of a rule, where `*` stands for any."""
    if not resources:
        yield fields.required(path)
    whole: set[str] = set()  # resources of which all subresources are meant
    everywhere: set[str] = set()  # subresources that are meant of all resources
    plain = False
    for index, given in enumerate(resources):
        if not given:
            yield fields.required(f"{path}[{index}]")
            continue
        resource, slash, part = given.partition("/")
        if not slash:
            plain = given != "*"
            continue
        if resource in whole:
            why = f"if '{resource}/*' is present, must not specify {given}"
            yield fields.invalid_value(f"{path}[{index}]", given, why)
        if part in everywhere:
            why = f"if '*/{part}' is present, must not specify {given}"
            yield fields.invalid_value(f"{path}[{index}]", given, why)
        if part == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(part)
    if len(resources) > 1 and "*/*" in resources:
        why = "if '*/*' is present, must not specify other resources"
        yield fields.invalid_value(path, list(resources), why)
    if "*" in resources and plain:
        why = "if '*' is present, must not specify other resources without subresources"
        yield fields.invalid_value(path, list(resources), why)


def _operation_problems(match: JsonObject | None, path: str) -> Iterator[FieldError]:
    """Yield the operations that no policy can mutate."""
    for rule in (match or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in MUTATING_OPERATIONS:
                where = f"{path}.resourceRules.operations"
                yield fields.not_supported(where, operation, MUTATING_OPERATIONS)


def _param_ref_problems(ref: JsonObject | None, path: str) -> Iterator[FieldError]:
    if ref is None:
        return
    name, selector = ref.get("name"), ref.get("selector")
    alone = "name and selector are mutually exclusive"
    for why in any_name(name or ""):
        yield fields.invalid_value(f"{path}.name", name, why)
    if name and selector is not None:
        yield fields.forbidden(f"{path}.name", alone)
    if selector is not None:
        yield from label_selector_problems(selector, f"{path}.selector")
        if name:
            yield fields.forbidden(f"{path}.selector", alone)
    if not name and selector is None:
        yield fields.required(path, "one of name or selector must be specified")
    action = ref.get("parameterNotFoundAction")
    if not action:
        yield fields.required(f"{path}.parameterNotFoundAction")
    elif action not in {"Allow", "Deny"}:
        yield fields.not_supported(
            f"{path}.parameterNotFoundAction", action, ["Deny", "Allow"], ordered=True
        )


def _action_problems(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    again = fields.repeated(actions)
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            yield fields.not_supported(f"{path}[{index}]", action, ACTIONS)
        if index in again:
            yield fields.duplicate(f"{path}[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        yield fields.invalid_value(path, list(actions), why)
    if not actions:
        yield fields.required(path, "at least one validation action is required")

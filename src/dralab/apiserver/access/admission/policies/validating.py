"""The plugin ValidatingAdmissionPolicy.

Source of order and words: k8s.io/apiserver `admission/plugin/policy/validating`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from dralab import cel
from dralab.api.kinds import Kind
from dralab.api.status import ApiError, Cause
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.admission.conditions import ConditionError
from dralab.apiserver.access.admission.expressions import PER_POLICY, ReviewValues
from dralab.apiserver.access.admission.forms import Forms
from dralab.apiserver.access.admission.policies.definitions import (
    AdmissionPolicy,
    Policies,
    PolicyBinding,
    Validation,
)
from dralab.apiserver.access.admission.policies.parameters import (
    ParameterError,
    Parameters,
    UnknownParamKind,
)
from dralab.apiserver.access.admission.policies.variables import (
    OUT_OF_BUDGET,
    OutOfBudget,
    PolicyVariables,
    failure,
)
from dralab.apiserver.metrics.families import AdmissionMetrics
from dralab.apiserver.metrics.meters import now
from dralab.values.labels import SelectorError
from dralab.values.records import dataclass

CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
INVALID: Final = 422
LONGEST_MESSAGE: Final = 5 * 1024
LONGEST_ANNOTATION: Final = 10 * 1024
FAILED: Final = "validation.policy.admission.k8s.io/validation_failure"


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """A violation of a policy by a write; `index` is the position of the validation."""

    message: str
    reason: str = ""
    index: int = 0
    always_denies: bool = False


Denied = tuple[AdmissionPolicy, PolicyBinding | None, PolicyFailure]


class ValidatingPolicies:
    """Evaluates policies about a write."""

    name = "ValidatingAdmissionPolicy"

    def __init__(self, policies: Policies, forms: Forms, metrics: AdmissionMetrics) -> None:
        self.policies = policies
        self.forms = forms
        self.metrics = metrics
        self.parameters = Parameters(forms)

    @property
    def active(self) -> bool:
        """Whether any policy has a binding."""
        return bool(self.policies.all)

    def validate(self, review: Review) -> None:
        """Evaluate all policies that match; the first denial becomes the ApiError."""
        denied: list[Denied] = []
        shown: dict[Kind, ReviewValues] = {}
        for policy, bindings in self.policies.all:
            try:
                kind = policy.criteria.match(review)
            except SelectorError as error:
                denied += self._misconfigured(policy, None, error)
                continue
            if kind is None:
                continue
            values = shown.get(kind)
            if values is None:
                values = shown[kind] = ReviewValues(review, kind, self.forms)
            annotations: dict[str, list[str]] = {}
            for binding in bindings:
                try:
                    if binding.criteria.match(review) is None:
                        continue
                    params = self.parameters.of(policy, binding, review)
                except UnknownParamKind as error:
                    denied += self._misconfigured(policy, None, error)
                    break
                except (ParameterError, SelectorError) as error:
                    denied += self._misconfigured(policy, binding, error)
                    continue
                for param in params:
                    variables = PolicyVariables(policy, values, param, PER_POLICY)
                    began = now()
                    found = self._findings(policy, variables, annotations)
                    if found:
                        denied += self._acted(policy, binding, review, found)
                    self._measure(policy, binding, found, began)
            for key, texts in annotations.items():
                review.scope.annotate(f"{policy.name}/{key}", ", ".join(dict.fromkeys(texts)))
        if denied:
            raise _denial(review, *denied[0])

    def _measure(
        self,
        policy: AdmissionPolicy,
        binding: PolicyBinding,
        found: Sequence[PolicyFailure],
        began: int,
    ) -> None:
        action = "allow"
        if found:
            always = any(each.always_denies for each in found)
            action = "deny" if always or "Deny" in binding.actions else binding.actions[0].lower()
        self.metrics.checked((action, "invalid_error", policy.name, binding.name), began)

    def _acted(
        self,
        policy: AdmissionPolicy,
        binding: PolicyBinding,
        review: Review,
        findings: Sequence[PolicyFailure],
    ) -> Iterator[Denied]:
        """Yield the denials of a write by one binding; warn and annotate by its actions."""
        for finding in findings:
            if finding.always_denies:
                yield policy, binding, finding
                continue
            for action in binding.actions:
                if action == "Deny":
                    yield policy, binding, finding
                elif action == "Warn":
                    review.scope.warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' "
                        f"with binding '{binding.name}': {finding.message}"
                    )
                elif action == "Audit":
                    review.scope.annotate(FAILED, _audited(policy, binding, finding))

    def _findings(
        self, policy: AdmissionPolicy, variables: PolicyVariables, annotations: dict[str, list[str]]
    ) -> Sequence[PolicyFailure]:
        """Return the violations of a policy by a write; record its audit annotations."""
        try:
            if policy.conditions and not policy.conditions.match(
                variables, ignore_errors=policy.ignores_failures
            ):
                return ()
        except ConditionError as error:
            return (PolicyFailure(str(error)),)
        found: list[PolicyFailure] = []
        try:
            for index, each in enumerate(policy.validations):
                outcome = variables.value(each.expression)
                if outcome is not True and (
                    finding := self._finding(policy, each, variables, index, outcome)
                ):
                    found.append(finding)
        except OutOfBudget:
            found = [] if policy.ignores_failures else [PolicyFailure(OUT_OF_BUDGET)]
        if policy.annotations:
            variables.left = PER_POLICY
            found += self._annotated(policy, variables, annotations)
        return found

    def _finding(
        self,
        policy: AdmissionPolicy,
        each: Validation,
        variables: PolicyVariables,
        index: int,
        found: Any,
    ) -> PolicyFailure | None:
        """Return the violation of one validation that is not true, if it counts. OutOfBudget."""
        if isinstance(found, (cel.CelError, cel.CompileError)):
            if policy.ignores_failures:
                return None
            return PolicyFailure(failure(each.expression, found), index=index)
        message = ""
        if each.message_expression is not None:
            said = variables.value(each.message_expression)
            if isinstance(said, str) and len(said.strip()) <= LONGEST_MESSAGE:
                message = "" if "\n" in said.strip() else said.strip()
        message = message or each.message or f"failed expression: {each.text}"
        return PolicyFailure(message, each.reason, index)

    def _annotated(
        self, policy: AdmissionPolicy, variables: PolicyVariables, annotations: dict[str, list[str]]
    ) -> Iterator[PolicyFailure]:
        for key, expression in policy.annotations:
            try:
                found = variables.value(expression)
            except OutOfBudget as error:
                found = cel.CelError(str(error))
            why = ""
            if isinstance(found, (cel.CelError, cel.CompileError)):
                why = failure(expression, found)
            elif isinstance(found, str):
                if text := found.strip():
                    annotations.setdefault(key, []).append(text[:LONGEST_ANNOTATION])
            elif found is not None:
                why = (
                    f"valueExpression '{_text(expression)}' resulted in unsupported return type: "
                    f"{type(found).__name__}. Return type must be either string or null."
                )
            if why and not policy.ignores_failures:
                yield PolicyFailure(why, always_denies=True)

    def _misconfigured(
        self, policy: AdmissionPolicy, binding: PolicyBinding | None, error: Exception
    ) -> Iterator[Denied]:
        if not policy.ignores_failures:
            what = "policy" if binding is None else "binding"
            yield policy, binding, PolicyFailure(f"failed to configure {what}: {error}")


def _text(expression: Any) -> str:
    return str(getattr(expression, "text", ""))


def _audited(policy: AdmissionPolicy, binding: PolicyBinding, finding: PolicyFailure) -> str:
    failures: Sequence[Any] = [
        {
            "message": finding.message,
            "policy": policy.name,
            "binding": binding.name,
            "expressionIndex": finding.index,
            "validationActions": list(binding.actions),
        }
    ]
    return orjson.dumps(failures).decode()


def _denial(
    review: Review, policy: AdmissionPolicy, binding: PolicyBinding | None, finding: PolicyFailure
) -> ApiError:
    by = f"ValidatingAdmissionPolicy '{policy.name}'"
    if binding is not None:
        by += f" with binding '{binding.name}'"
    message = f"{by} denied request: {finding.message}"
    kind = review.kind
    found = ApiError.forbidden(
        kind.plural, review.given_name or "Unknown", message, group=kind.group
    )
    reason = finding.reason or "Invalid"
    return ApiError(
        reason,
        found.message,
        code=CODES.get(reason, INVALID),
        details=found.details,
        causes=[Cause(reason="", message=message)],
    )

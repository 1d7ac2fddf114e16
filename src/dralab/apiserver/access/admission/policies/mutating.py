"""The plugin MutatingAdmissionPolicy.

Source of order and words: k8s.io/apiserver `admission/plugin/policy/mutating`,
`admission/plugin/policy/generic`.
"""

from collections.abc import Iterator
from typing import Any, Final

from dralab import cel
from dralab.api.kinds import Kind
from dralab.api.status import ApiError, Cause
from dralab.apiserver.access.admission.chain import Reinvocation, Review
from dralab.apiserver.access.admission.conditions import ConditionError
from dralab.apiserver.access.admission.expressions import PER_POLICY, ReviewValues
from dralab.apiserver.access.admission.forms import Forms, MergeError, replace_object, shown_for
from dralab.apiserver.access.admission.policies.definitions import (
    AdmissionPolicy,
    Mutation,
    Policies,
    PolicyBinding,
)
from dralab.apiserver.access.admission.policies.parameters import (
    ParameterError,
    Parameters,
    UnknownParamKind,
)
from dralab.apiserver.access.admission.policies.patches import MutationError, configuration, patched
from dralab.apiserver.access.admission.policies.variables import (
    OutOfBudget,
    PolicyVariables,
    failure,
)
from dralab.values.labels import SelectorError

UNCONFIGURED: Final = "failed to configure binding"


class MutatingPolicies:
    """Evaluates policies that change the object of a write, one after the other."""

    name = "MutatingAdmissionPolicy"

    def __init__(self, policies: Policies, forms: Forms) -> None:
        self.policies = policies
        self.forms = forms
        self.parameters = Parameters(forms)

    @property
    def active(self) -> bool:
        """Whether any policy has a binding."""
        return bool(self.policies.all)

    def admit(self, review: Review) -> None:
        """Let all policies that match change the object. ApiError."""
        state = Reinvocation.of(review, self.name)
        errors: list[tuple[AdmissionPolicy, PolicyBinding | None, str]] = []
        for policy, bindings in self.policies.all:
            try:
                kind = policy.criteria.match(review)
            except SelectorError as error:
                errors.append((policy, None, f"failed to configure policy: {error}"))
                continue
            if kind is None:
                continue
            for binding in bindings:
                errors += self._bound(policy, binding, review, kind, state)
        state.seen = review.encoded()
        refusals = [error for error in errors if not error[0].ignores_failures]
        if refusals:
            raise _denial(review, refusals)

    def _bound(
        self,
        policy: AdmissionPolicy,
        binding: PolicyBinding,
        review: Review,
        kind: Kind,
        state: Reinvocation,
    ) -> Iterator[tuple[AdmissionPolicy, PolicyBinding | None, str]]:
        """Mutate by one binding; yield what goes wrong."""
        try:
            if binding.criteria.match(review) is None:
                return
            params = self.parameters.of(policy, binding, review)
        except UnknownParamKind as error:
            yield policy, None, f"failed to configure policy: {error}"
            return
        except (ParameterError, SelectorError) as error:
            yield policy, binding, f"{UNCONFIGURED}: {error}"
            return
        for number, param in enumerate(params):
            key = (policy.name, binding.name, number)
            if review.round and key not in state.again:
                continue
            changed = False
            try:
                if policy.conditions and not policy.conditions.match(
                    self._variables(policy, review, kind, param),
                    ignore_errors=policy.ignores_failures,
                ):
                    continue
            except ConditionError as error:
                yield policy, binding, str(error)
                continue
            for mutation in policy.mutations:
                if review.value is None:
                    continue
                try:
                    variables = self._variables(policy, review, kind, param)
                    changed |= self._mutated(mutation, review, kind, variables)
                except (MergeError, MutationError, OutOfBudget) as error:
                    yield policy, binding, str(error)
            if changed:
                state.require()
                review.again = not review.round
            if policy.reinvoked:
                state.invoked.append(key)

    def _variables(
        self, policy: AdmissionPolicy, review: Review, kind: Kind, param: Any
    ) -> PolicyVariables:
        # Anew for each mutation: the one before has changed the object.
        return PolicyVariables(policy, ReviewValues(review, kind, self.forms), param, PER_POLICY)

    def _mutated(
        self, mutation: Mutation, review: Review, kind: Kind, variables: PolicyVariables
    ) -> bool:
        """Change the object; return whether it changed. MutationError, OutOfBudget."""
        found = variables.value(mutation.expression)
        if isinstance(found, (cel.CelError, cel.CompileError)):
            raise MutationError(failure(mutation.expression, found))
        if review.value is None:
            raise AssertionError(review)
        shown = shown_for(review, kind, review.value, self.forms)
        if mutation.patches:
            result = patched(shown, found)
            if result is shown:
                return False
        else:
            config = configuration(found)
            config |= {"kind": shown["kind"], "apiVersion": shown["apiVersion"]}
            result = self.forms.merged(kind, shown, config)
        return replace_object(review, kind, result, self.forms)


def _denial(
    review: Review, errors: list[tuple[AdmissionPolicy, PolicyBinding | None, str]]
) -> ApiError:
    texts = [
        f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}"
        if binding is not None
        else f'policy "{policy.name}" denied request: {why}'
        for policy, binding, why in errors
    ]
    kind, (_, binding, why) = review.kind, errors[0]
    found = ApiError.forbidden(kind.plural, review.given_name or "Unknown", "", group=kind.group)
    return ApiError(
        "Forbidden" if binding is None or why.startswith(UNCONFIGURED) else "Invalid",
        texts[0],
        code=403,  # whatever the reason, as kube-apiserver answers
        details=found.details,
        causes=[Cause(reason="", message=text) for text in texts],
    )

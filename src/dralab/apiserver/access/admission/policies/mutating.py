"""The plugin MutatingAdmissionPolicy.

Source of order and words: k8s.io/apiserver `admission/plugin/policy/mutating`,
`admission/plugin/policy/generic`, `pkg/cel/mutation`.
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
from dralab.apiserver.access.admission.policies.variables import (
    OutOfBudget,
    PolicyVariables,
    failure,
)
from dralab.cel.json_values import to_json
from dralab.cel.values import Message
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict
from dralab.values.labels import SelectorError
from dralab.values.patches import FailedTest, PatchError, TooManyOperations

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


class MutationError(Exception):
    """A mutation cannot be made; `str` says why."""


def patched(obj: JsonDict, operations: Any) -> JsonDict:
    """Return an object after the JSON patch that an expression returned. MutationError.

    A `test` that fails leaves the object as it is.
    """
    found = []
    for each in operations:
        if not isinstance(each, Message):
            raise MutationError(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
            )
        operation = {name: _plain(value) for name, value in each.items()}
        if operation.get("from") == "":
            del operation["from"]
        if operation.get("op") in {"add", "replace", "test"}:
            operation.setdefault("value", None)
        found.append(operation)
    try:
        result = json_patch(obj, found)
    except TooManyOperations as error:
        raise MutationError(f"JSON Patch: {error}") from error
    except FailedTest:
        return obj
    except PatchError as error:
        raise MutationError(f"JSON Patch: {error}") from error
    if not isinstance(result, dict):
        raise MutationError("JSON Patch: the result is not an object")
    return result


def configuration(found: Any) -> JsonDict:
    """Return the apply configuration that an expression returned. MutationError."""
    if not isinstance(found, Message):
        raise MutationError("unsupported return type from ApplyConfiguration expression")
    _check_names(found, "Object")
    value = _plain(found)
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    try:
        return to_json(value)
    except cel.CelError as error:
        raise MutationError(str(error)) from error


def _check_names(message: Message, path: str) -> None:
    """Check that the type of each message matches the field that holds it. MutationError."""
    if message.name != path:
        raise MutationError(
            f'type mismatch: unexpected type name "{message.name}", expected "{path}", which '
            "matches field name path from root Object type"
        )
    for name, value in message.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                _check_names(each, f"{path}.{name}")

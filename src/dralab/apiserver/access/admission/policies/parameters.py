"""The parameters of a binding: the objects of `paramKind` that its `paramRef` names.

Source: k8s.io/apiserver `admission/plugin/policy/generic` (CollectParams).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api.kinds import Kind
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.admission.forms import Forms
from dralab.apiserver.access.admission.policies.definitions import AdmissionPolicy, PolicyBinding
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.storage import Key, Stored
from dralab.cel.json_values import from_json
from dralab.objects.metadata import labels_of
from dralab.values.labels import SelectorError, from_mapping

KEPT: Final = 256


class ParameterError(Exception):
    """The parameters of a binding cannot be found; `str` says why."""


class UnknownParamKind(ParameterError):  # noqa: N818 - a fact, which the policy's denial tells
    """No kind is served by the name of a policy's `paramKind`."""


class Parameters:
    """Finds parameters and keeps them as values of expressions, until they change."""

    def __init__(self, forms: Forms) -> None:
        self.forms = forms
        self._values: dict[tuple[Key, str], tuple[Stored, Any]] = {}

    def of(self, policy: AdmissionPolicy, binding: PolicyBinding, review: Review) -> Sequence[Any]:
        """Return the parameters; None means: evaluate the policy without one. ParameterError."""
        if policy.param_kind is None:
            return (None,)
        ref = binding.params
        if ref is None:
            return (None,)
        api_version, name = policy.param_kind
        kind = self.forms.kinds.of_object(api_version, name)
        if kind is None:
            raise UnknownParamKind(
                f"failed to find resource referenced by paramKind: '{api_version}, Kind={name}'"
            )
        found = self._stored(kind, ref, review)
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise ParameterError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return [self._value(kind, each, review.scope) for each in found]

    def _stored(self, kind: Kind, ref: Mapping[str, Any], review: Review) -> Sequence[Stored]:
        namespace = ref.get("namespace") or ""
        if kind.namespaced:
            namespace = namespace or review.namespace
            if not namespace:
                raise ParameterError(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                    "resources"
                )
        elif namespace:
            raise ParameterError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        if name := ref.get("name"):
            if ref.get("selector") is not None:
                raise ParameterError("paramRef.name and paramRef.selector are mutually exclusive")
            found = review.scope.find(Key(kind.hub, namespace, name))
            return () if found is None else (found,)
        if ref.get("selector") is None:
            raise ParameterError("one of name or selector must be provided")
        selector = from_mapping(ref["selector"])
        try:
            return [
                each
                for each in review.scope.all_of(kind.hub, namespace)
                if selector.accepts(labels_of(each.value))
            ]
        except SelectorError as error:
            raise ParameterError(str(error)) from error

    def _value(self, kind: Kind, stored: Stored, scope: RequestScope) -> Any:
        place = (stored.key, kind.api_version)
        kept = self._values.get(place)
        # Not the same revision: one that was taken back is given to another write.
        if kept is not None and kept[0] is stored:
            return kept[1]
        found = from_json(self.forms.shown(kind, stored.value, scope))
        if len(self._values) >= KEPT:
            self._values.clear()
        self._values[place] = (stored, found)
        return found

"""Selection by fields of a custom resource in the version asked for, which may not be stored.

Source: k8s.io/apiextensions-apiserver `pkg/registry/customresource` (selectableFieldsFromObject),
which selects after conversion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.selectors import Selection, selection
from dralab.values.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class VersionedFilter:
    """Whether a stored object is selected in the version of `kind`.

    Equal filters share the work of a watch. An object that its webhook has not converted yet
    counts as selected: the answer then shows the error, and a client lists again.
    """

    rules: Rules
    kind: Kind
    fits: Callable[[JsonObject], bool]

    def __call__(self, stored: Stored) -> bool:
        """Return whether the object is selected."""
        try:
            value = self.rules.from_hub(self.kind, stored.value)
        except (ApiError, MustWait):
            return True
        return self.fits(value)

    def among(self, items: Sequence[Stored], scope: Scope) -> list[Stored]:
        """Return the selected objects, converted in one call. ApiError, MustWait."""
        self.rules.prepare(self.kind, items, scope)
        return [stored for stored in items if self(stored)]


def selection_of(scope: Scope, kind: Kind, labels: str, fields: str) -> Selection:
    """Return the selection of both selectors of a request. ApiError BadRequest."""
    found = selection(kind, labels, fields)
    if not found.by_version or found.fits is None or scope.rules.is_hub(kind):
        return found
    accepts = VersionedFilter(scope.rules, kind, found.fits)
    return replace(found, accepts=accepts, exact=None)


def among(chosen: Selection, items: Sequence[Stored], scope: Scope) -> Sequence[Stored]:
    """Return the selected objects. ApiError, MustWait."""
    match chosen.accepts:
        case None:
            return items
        case VersionedFilter() as versioned:
            return versioned.among(items, scope)
        case accepts:
            return [stored for stored in items if accepts(stored)]

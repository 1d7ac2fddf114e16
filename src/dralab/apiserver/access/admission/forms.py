"""The objects of a write in other versions, for the plugins that users configure."""

from collections.abc import Mapping
from typing import Any, Protocol

from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError, Cause
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.scope import RequestScope
from dralab.cel.functions.authorizer import Decide
from dralab.values.json_types import JsonDict


class Forms(Protocol):
    """The objects of writes in other versions; `resources.admission_forms` has one."""

    @property
    def kinds(self) -> Kinds:
        """The kinds that are served."""
        ...

    def shown(self, kind: Kind, value: Mapping[str, Any], scope: RequestScope) -> JsonDict:
        """Return an object in the version of a kind, with its type. MustWait."""
        ...

    def taken(self, kind: Kind, value: JsonDict, scope: RequestScope) -> JsonDict:
        """Return an object of some version in its stored form. ApiError."""
        ...

    def merged(self, kind: Kind, obj: JsonDict, config: JsonDict) -> JsonDict:
        """Return an object merged with an apply configuration. MergeError."""
        ...

    def new_uid(self) -> str:
        """Return the uid for a new AdmissionReview."""
        ...

    def decide(self, review: Review) -> Decide:
        """Return the function that authorizes the user of a write."""
        ...


class MergeError(ValueError):
    """An apply configuration cannot be merged with an object; `str` says why."""


def shown_for(review: Review, kind: Kind, value: Mapping[str, Any] | None, forms: Forms) -> Any:
    """Return an object of a review in the version of a kind.

    What stands for a part of an object, such as a Scale, is of its own kind already.
    """
    if value is None or review.form is not None:
        return value
    return forms.shown(kind, value, review.scope)


def replace_object(review: Review, kind: Kind, value: JsonDict, forms: Forms) -> bool:
    """Put a changed object, in the version of `kind`, in the place of the one under review.

    Return whether it is another one. ApiError.
    """
    if review.value is None:
        raise AssertionError(review)
    found = value if review.form else forms.taken(kind, value, review.scope)
    if found == review.value:
        return False
    review.value.clear()
    review.value.update(found)
    review.changed = True
    return True


def internal_error(why: str) -> ApiError:
    """Return an InternalError with a cause."""
    return ApiError(
        "InternalError",
        f"Internal error occurred: {why}",
        code=500,
        details={},
        causes=[Cause(reason="", message=why)],
    )

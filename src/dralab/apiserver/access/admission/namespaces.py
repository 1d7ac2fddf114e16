"""Objects need an existing namespace; some namespaces cannot be deleted (NamespaceLifecycle)."""

from typing import Final

from dralab.api.status import ApiError, Cause
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.storage import Key
from dralab.objects.metadata import is_deleting

IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    """Refuses new objects in namespaces that are missing or going away."""

    name = "NamespaceLifecycle"

    def admit(self, review: Review) -> None:
        """Raise NotFound or Forbidden where the namespace does not allow the write."""
        kind = review.kind
        if review.operation == "DELETE":
            if kind.hub == "namespaces" and review.name in IMMORTAL:
                raise ApiError.forbidden(
                    kind.plural, review.name, "this namespace may not be deleted"
                )
            return
        if review.operation != "CREATE" or not review.namespace or review.subresource:
            return
        found = review.scope.find(Key("namespaces", "", review.namespace))
        if found is None:
            raise ApiError.not_found("namespaces", review.namespace)
        if is_deleting(found.value):
            raise terminating(review)


def terminating(review: Review) -> ApiError:
    """Return the error for a write into a namespace that is being deleted."""
    kind, namespace = review.kind, review.namespace
    error = ApiError.forbidden(
        kind.plural,
        review.name,
        f"unable to create new content in namespace {namespace} because it is being terminated",
        group=kind.group,
    )
    error.causes = (
        Cause(
            reason="NamespaceTerminating",
            message=f"namespace {namespace} is being terminated",
            field="metadata.namespace",
        ),
    )
    return error

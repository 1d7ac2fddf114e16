"""Patches: JSON patch, merge patch, strategic merge and server-side apply, on stored objects."""

from typing import Any, Literal

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.resources import writing
from dralab.apiserver.resources.context import Context, Object
from dralab.apiserver.resources.options import WriteOptions
from dralab.apiserver.storage import Stored

PatchType = Literal["json", "merge", "strategic", "apply"]


def patch(
    context: Context,
    kind: Kind,
    name: str,
    patch: Any,
    *,
    namespace: str,
    options: WriteOptions,
    type: PatchType,  # noqa: ARG001 - the others follow
    subresource: str = "",
) -> tuple[Stored, bool]:
    """Change an object by a patch; also return whether that created it."""

    def edit(current: Object) -> Object:
        found = merged(current, patch)
        if not isinstance(found, dict):
            raise ApiError.bad_request("a patch of an object must leave an object")
        return found

    stored = writing.change(
        context, kind, name, namespace, edit, options=options, subresource=subresource
    )
    return stored, False


def merged(current: Any, patch: Any) -> Any:
    """Return a document after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(current) if isinstance(current, dict) else {}
    for key, item in patch.items():
        if item is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), item)
    return found

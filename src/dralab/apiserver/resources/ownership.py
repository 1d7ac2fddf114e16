"""Who owns which field: keeps metadata.managedFields beside every write."""

from dralab.api.kinds import Kind
from dralab.apiserver.resources.context import Context, Object
from dralab.apiserver.resources.options import WriteOptions


def created(context: Context, kind: Kind, value: Object, options: WriteOptions) -> None:
    """Note who made a new object."""
    value["metadata"].pop("managedFields", None)


def updated(
    context: Context,
    kind: Kind,
    value: Object,
    old: Object,
    options: WriteOptions,
    subresource: str,
) -> None:
    """Note who changed an object."""
    if "managedFields" in old["metadata"]:
        value["metadata"]["managedFields"] = old["metadata"]["managedFields"]
    else:
        value["metadata"].pop("managedFields", None)

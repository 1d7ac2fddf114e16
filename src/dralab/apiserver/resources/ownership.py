"""Who owns which field: keeps metadata.managedFields beside every write."""

from dralab.apiserver.resources.context import Object


def created(value: Object) -> None:
    """Note who made a new object."""
    value["metadata"].pop("managedFields", None)


def updated(value: Object, old: Object) -> None:
    """Note who changed an object."""
    if "managedFields" in old["metadata"]:
        value["metadata"]["managedFields"] = old["metadata"]["managedFields"]
    else:
        value["metadata"].pop("managedFields", None)

"""Objects as a real server holds them in memory, which some of its errors show.

It validates a form without a version. An error that shows a part of it names the fields as Go
does, in the order of the struct, and those that are empty, too.

Source of the structs: k8s.io/kubernetes `pkg/apis/*/types.go`, read by
`tools/generate_internal_types.py`. The device API has its own table (`api/resource`).
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dralab.api.messages import Messages
from dralab.api.releases import unpacked

# Fields of a pod's spec that Go keeps in its security context.
OF_HOST: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
ZEROS: Final[Mapping[str, Any]] = {
    "string": "", "types.UID": "", "bool": False, "int32": 0, "int64": 0,
    "resource.Quantity": "0", "intstr.IntOrString": 0,
}  # fmt: skip
META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1."
OWNER: Final = META + "OwnerReference"


@lru_cache(maxsize=1)
def _structs() -> Mapping[str, Sequence[tuple[str, str, str]]]:
    """Return the fields of each struct: name in Go (empty if embedded), name in JSON, type."""
    found: dict[str, list[tuple[str, str, str]]] = unpacked("internal_types.json.gz")
    return found


def internal_form(type: str, value: Any) -> Any:
    """Return a value of JSON as the Go type has it.

    >>> internal_form("core.LocalObjectReference", {"name": "a"})
    {'Name': 'a'}
    >>> internal_form("*core.LocalObjectReference", None) is None
    True
    """
    if type.startswith("*"):
        return None if value is None else internal_form(type[1:], value)
    if type.startswith("[]"):
        return None if value is None else [internal_form(type[2:], item) for item in value]
    if type.startswith("map["):
        inner = type.partition("]")[2]
        return None if value is None else {k: internal_form(inner, value[k]) for k in sorted(value)}
    if type.startswith("metav1."):
        return versioned_form(META + type.removeprefix("metav1."), value or {})
    if type not in _structs():
        return ZEROS[type] if value is None else value
    given = dict(value or {})
    if type == "core.PodSpec" and (given.keys() & set(OF_HOST)):
        host = {f"^{name}": given[name] for name in OF_HOST if name in given}
        given["securityContext"] = {**(given.get("securityContext") or {}), **host}
    found: dict[str, Any] = {}
    for name, said, of in _structs()[type]:
        if name:
            found[name] = internal_form(of, given.get(said))
        else:
            found |= internal_form(of, _embedded(type, of, given))
    return found


def _embedded(holder: str, type: str, given: Mapping[str, Any]) -> Any:
    """Return the fields of an embedded struct, which JSON has among those of its holder."""
    return given.get("metadata") if type == "metav1.ObjectMeta" and holder else given


def versioned_form(message: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct with its fields in the order of Go's, and with those always shown.

    >>> versioned_form(META + "LabelSelectorRequirement", {"operator": "Exists"})
    {'key': '', 'operator': 'Exists'}
    """
    messages = Messages.standard()
    zeros = messages.zeros(message)
    found: dict[str, Any] = {}
    for _, field in sorted(messages.fields(message).items()):
        item = value.get(field.name)
        single = field.type in messages and not (field.list or field.map)
        if not item and field.omitempty and not field.pointer and not single:
            continue  # Go leaves it out
        if item is None:
            if field.name in zeros:
                found[field.name] = zeros[field.name]
            continue
        if field.type in messages and isinstance(item, dict):
            item = versioned_form(field.type, item)
        elif field.type in messages and isinstance(item, list):
            item = [versioned_form(field.type, each) for each in item]
        elif field.map:
            item = {key: item[key] for key in sorted(item)}
        found[field.name] = item
    if message == OWNER:  # whose numbers are not in the order of the struct
        return {name: found[name] for name in ("apiVersion", *found) if name in found}
    return found


def difference(type: str, old: Any, new: Any) -> str:
    """Return what changed between two values of a Go type, line by line, as errors show it.

    Source: k8s.io/apimachinery `pkg/util/diff`.
    """
    before, after = (
        json.dumps(internal_form(type, value), indent=1, ensure_ascii=False).splitlines(
            keepends=True
        )
        for value in (old, new)
    )
    before[-1] += "\n"
    after[-1] += "\n"
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])

"""A help as a JSON patch of the object that it is about, and as a command that applies it."""

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import orjson

from dralab.explanation.causes import Help

STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
KINDS: Final = {
    "claim": "ResourceClaim", "class": "DeviceClass", "group": "PodGroup", "pod": "Pod",
}  # fmt: skip
"""The kinds of the objects that helps and places are about."""
WRITTEN: Final = frozenset({"spelling", "guard", "value", "count", "constraint"})


def patch_of(found: Help) -> list[dict[str, Any]]:
    """Return a help as a JSON patch (RFC 6902) of the object of its mark; empty if it has none.

    >>> from dralab.explanation.causes import MarkedField
    >>> mark = MarkedField(owner=("claim", "ml/c"), field="spec.devices.requests[0].exactly.count")
    >>> patch_of(Help(kind="count", now=True, number=2, mark=mark))
    [{'op': 'replace', 'path': '/spec/devices/requests/0/exactly/count', 'value': 2}]
    """
    mark = found.mark
    if mark is None or not mark.field:
        return []
    if found.edits:
        return [dict(each) for each in found.edits]
    path = pointer(mark.field)
    if found.kind == "count":
        return [{"op": "replace", "path": path, "value": found.number}]
    if found.kind == "tolerate":
        key, _, effect = found.to.rpartition(":")
        name, equals, value = key.partition("=")
        toleration = {"key": name, "operator": "Equal" if equals else "Exists", "effect": effect}
        toleration |= {"value": value} if equals else {}
        if found.note == "first":
            return [{"op": "add", "path": path, "value": [toleration]}]
        return [{"op": "add", "path": f"{path}/-", "value": toleration}]
    if found.kind == "drop" and not mark.text:
        return [{"op": "remove", "path": path}]
    if found.kind in WRITTEN or found.kind == "drop":
        return [{"op": "replace", "path": path, "value": mark.text}]
    return []


def command_of(found: Help, templates: Mapping[str, str]) -> str:
    """Return a command that does what a help says; empty if there is none.

    `templates` names the template of claims that were made from one. The spec of claims and
    templates cannot change: they are deleted and created again.
    """
    if found.command or found.mark is None:
        return found.command
    patch = patch_of(found)
    if not patch:
        return ""
    kind, name = found.mark.owner
    resource = KINDS[kind].lower()
    if kind == "claim" and name in templates:
        resource, name = "resourceclaimtemplate", templates[name]
        patch = [each | {"path": f"/spec{each['path']}"} for each in patch]
    namespace, _, short = name.rpartition("/")
    where = f" -n {namespace}" if namespace and namespace != "default" else ""
    given = shlex.quote(orjson.dumps(patch).decode())
    if kind == "class":
        return f"kubectl patch {resource} {short} --type=json -p {given}"
    return (
        f"kubectl get {resource} {short}{where} -o yaml | kubectl patch --local -f - --type=json "
        f"-p {given} -o yaml | kubectl replace --force -f -"
    )


def pointer(field: str) -> str:
    """Return a field path as a JSON pointer.

    >>> pointer("spec.capacity.requests[a.b/c].x[0]")
    '/spec/capacity/requests/a.b~1c/x/0'
    """
    return "".join(f"/{escaped(plain or inside)}" for plain, inside in STEP.findall(field))


def escaped(step: str) -> str:
    """Return one step of a JSON pointer."""
    return step.replace("~", "~0").replace("/", "~1")

"""Field names in any case: the authors' types read `Driver` and `driver` alike, as Go does."""

from collections.abc import Iterator
from typing import Any

from dralab.prototypes.findings import Finding, invalid, legacy
from dralab.prototypes.schema_words import Schema


def respell(schema: Schema, value: Any, path: str = "") -> Iterator[Finding]:
    """Give fields, in place, the case that a schema has; yield a finding for each.

    >>> item = {"Spec": {"Driver": "toys"}}
    >>> fields = {"spec": {"properties": {"driver": {}}}}
    >>> [str(finding) for finding in respell({"properties": fields}, item)], item
    (['Spec: read as spec', 'spec.Driver: read as driver'], {'spec': {'driver': 'toys'}})
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from respell(schema.get("items") or {}, item, f"{path}[{index}]")
        return
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    by_case = {name.lower(): name for name in known}
    for name in list(value):
        wanted = by_case.get(str(name).lower())
        if name in known or wanted is None:
            continue
        where = f"{path}.{name}".lstrip(".")
        if wanted in value:
            yield invalid(where, f"means the same as {wanted}: set one of them")
        else:
            value[wanted] = value.pop(name)
            yield legacy(where, f"read as {wanted}")
    for name, inner in known.items():
        if name in value:
            yield from respell(inner, value[name], f"{path}.{name}".lstrip("."))

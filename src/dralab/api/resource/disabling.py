"""Fields of disabled features: dropped when an object is created, kept where they are in use.

Source of the habit: `dropDisabled…Fields` of k8s.io/kubernetes `pkg/registry/resource`. Which field
needs which gate is data (`api.gated_fields`); objects are looked at in their stored form.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from dralab.api.gated_fields import gated_paths, without
from dralab.api.releases import MIXED
from dralab.api.resource.features import Features
from dralab.api.resource.types import GROUP, KINDS
from dralab.values.json_types import JsonDict


def without_disabled(
    obj: JsonDict, features: Features, old: Mapping[str, Any] | None = None
) -> JsonDict:
    """Return the object without the fields of features that are off and that `old` does not use.

    The object itself is returned where there is nothing to drop.

    >>> class_ = {"kind": "DeviceClass", "spec": {"extendedResourceName": "example.com/gpu"}}
    >>> without_disabled(class_, frozenset())
    {'kind': 'DeviceClass', 'spec': {}}
    """
    suspects = _disabled(str(obj.get("kind", "")), features)
    if not suspects:
        return obj
    # Nearly no object has such a field: its JSON says so sooner than a walk along every path. What
    # is the old object's uses no more than that.
    parts = [obj.get(part) for part in ("spec", "status")]
    if old is not None:
        parts = [
            part for part in parts if part is not old.get("spec") and part is not old.get("status")
        ]
    text = orjson.dumps(parts)
    return without(obj, [path for path in suspects if b'"%s":' % path[-1].encode() in text], old)


@lru_cache(256)
def _disabled(kind: str, features: Features) -> tuple[tuple[str, ...], ...]:
    if kind not in KINDS:
        return ()
    stored = f"{GROUP}/{KINDS[kind][0]}"
    return tuple(
        path for path, gates in gated_paths(MIXED, stored, kind) if not features.issuperset(gates)
    )

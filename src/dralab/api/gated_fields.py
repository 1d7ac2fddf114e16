"""Fields that need a feature gate: dropped where it is off, kept where they are in use.

Which field needs which gate is data (`data/gated_fields.json.gz`, from tags beside the Go types).
Objects of the device API are looked at in the form that is stored (`api/resource/disabling`).
"""

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from dralab.api.releases import unpacked
from dralab.api.schemas import Schema, Schemas
from dralab.values.json_types import JsonDict

Path = tuple[str, ...]
EACH: Final = "*"
# Only init containers have a policy without the gate. Source: dropContainerRestartRules.
WITHOUT_RESTART: Final = {("containers",), ("ephemeralContainers",)}
NONE: Final[Mapping[str, Sequence[str]]] = {}


@cache
def _table() -> Mapping[str, Mapping[str, Sequence[str]]]:
    found: Mapping[str, Mapping[str, Sequence[str]]] = unpacked("gated_fields.json.gz")
    return found


def gated_in(definition: str) -> Mapping[str, Sequence[str]]:
    """Return the fields of a definition that need gates, each with its gates.

    >>> gated_in("io.k8s.api.batch.v1.JobSpec")
    {'scheduling': ['WorkloadWithJob']}
    """
    return _table().get(definition, NONE)


def drop(value: JsonDict, old: Mapping[str, Any] | None, release: str, off: frozenset[str]) -> None:
    """Remove the fields whose gates are `off` from an object, except those that `old` uses."""
    paths = paths_of(release, str(value["apiVersion"]), str(value["kind"]), off)
    _take_out(value, _used(value, paths, old))


def without(
    value: JsonDict, paths: Iterable[Path], old: Mapping[str, Any] | None = None
) -> JsonDict:
    """Return an object without the fields at some paths, except those that `old` uses.

    The object itself is returned where it has none of them.

    >>> without({"spec": {"a": 1, "b": 2}}, [("spec", "a")])
    {'spec': {'b': 2}}
    """
    found = _used(value, paths, old)
    return _take_out(copy.deepcopy(value), found) if found else value


def _used(value: JsonDict, paths: Iterable[Path], old: Mapping[str, Any] | None) -> Sequence[Path]:
    return [path for path in paths if uses(value, path) and (old is None or not uses(old, path))]


def _take_out(value: JsonDict, paths: Iterable[Path]) -> JsonDict:
    for path in paths:
        for holder in holders(value, path):
            holder.pop(path[-1], None)
    return value


@lru_cache(maxsize=256)
def paths_of(release: str, api_version: str, kind: str, gates: frozenset[str]) -> Sequence[Path]:
    """Return the fields of a kind that need one of some gates.

    >>> paths_of("1.37", "v1", "Pod", frozenset({"EvictionRequestAPI"}))
    (('spec', 'evictionResponders'),)
    """
    found = gated_paths(release, api_version, kind)
    return tuple(path for path, needed in found if not gates.isdisjoint(needed))


def gates_at(release: str, api_version: str, kind: str, path: str) -> Collection[str]:
    """Return the gates that a field needs; none where it needs none.

    >>> sorted(gates_at("1.37", "v1", "Pod", "spec.evictionResponders"))
    ['EvictionRequestAPI']
    """
    wanted = tuple(re.sub(r"\[[^\]]*\]", f".{EACH}", path).split("."))
    return next(
        (gates for each, gates in gated_paths(release, api_version, kind) if each == wanted), ()
    )


@lru_cache(maxsize=256)
def gated_paths(
    release: str, api_version: str, kind: str
) -> Sequence[tuple[Path, Collection[str]]]:
    """Return the fields of a kind that need gates: each path, with its gates."""
    schema = Schemas.standard(release).schema_of(api_version, kind)
    return () if schema is None else tuple(_gated(schema, (), ()))


def _gated(
    schema: Schema, path: Path, within: tuple[str, ...]
) -> Iterator[tuple[Path, Collection[str]]]:
    if schema.name and schema.name in within:
        return
    deeper = (*within, schema.name)
    gated = gated_in(schema.name)
    for name, part in schema.properties.items():
        if name in gated:
            yield (*path, name), frozenset(gated[name])
        if name == "restartPolicy" and path[-2:-1] in WITHOUT_RESTART:
            yield (*path, name), frozenset({"ContainerRestartRules"})
        yield from _gated(part, (*path, name), deeper)
    for below in (schema.item, schema.values):
        if below is not None:
            yield from _gated(below, (*path, EACH), deeper)


def uses(obj: Mapping[str, Any], path: Path) -> bool:
    """Return whether an object has a value at a path, in which `*` stands for each item."""
    return any(holder.get(path[-1]) is not None for holder in holders(obj, path))


def holders(value: Any, path: Path) -> Iterator[Any]:
    """Yield the mappings in which the last name of a path is or could be."""
    if len(path) == 1:
        if isinstance(value, dict):
            yield value
        return
    step, rest = path[0], path[1:]
    if step != EACH:
        if isinstance(value, dict) and value.get(step) is not None:
            yield from holders(value[step], rest)
        return
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from holders(item, rest)

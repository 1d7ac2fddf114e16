"""Requests at random, for two servers to answer: nearly valid objects of every kind, as dry runs.

Objects begin as those of the recordings in `tests/apiserver/conformance`. One to three of their
fields are dropped, changed, repeated or added, where also fields of other releases are added.
"""

import copy
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from dralab.api.kinds import Kind, Kinds
from dralab.api.schemas import Schema, Schemas

RECORDED = Path(__file__).with_name("apiserver") / "conformance"
NAMESPACE = "q"
ODD = ["", "a", "A_b", "1", -1, 0, 1, 70000, True, False, None, [], {}, "x" * 64, 2**40]
DEPTH = 4
# What changes most from release to release is asked about more.
OFTEN = {"Pod": 8, "ResourceClaim": 4, "ResourceSlice": 4, "DeviceClass": 2, "Node": 2}


class Asked(NamedTuple):
    """A request: what is sent where."""

    method: str
    target: str
    body: dict[str, Any]


def requests(kinds: Kinds, count: int, seed: str, *, later: bool = True) -> list[Asked]:
    """Return requests for the versions that these kinds have; with fields of `later` releases."""
    rng = random.Random(seed)
    bases = _bases(kinds)
    names = sorted(bases)
    weights = [OFTEN.get(kind, 1) for _, kind in names]
    found = []
    for _ in range(count):
        group_kind = rng.choices(names, weights)[0]
        kind = rng.choice([each for each in kinds if (each.group, each.kind) == group_kind])
        body = copy.deepcopy(rng.choice(bases[group_kind]))
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        schema = _schema_of(kind, later=later)
        for _ in range(rng.randint(1, 3)):
            _change(rng, body, schema)
        checked = rng.choice(["Warn", "Strict", "Ignore"])
        found.append(Asked("POST", f"{place_of(kind)}?dryRun=All&fieldValidation={checked}", body))
    return found


def place_of(kind: Kind) -> str:
    """Return the path of a collection."""
    within = f"/namespaces/{NAMESPACE}" if kind.namespaced else ""
    return f"{kind.path}{within}/{kind.plural}"


def _bases(kinds: Kinds) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the recorded objects of each kind that can be created."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in ("near-valid", "pods"):
        for line in (RECORDED / f"{name}-v1.36.jsonl").read_text().splitlines():
            body = json.loads(line)["body"]
            kind = isinstance(body, dict) and body.get("kind")
            if not kind:
                continue
            group = body["apiVersion"].rpartition("/")[0]
            if any((each.group, each.kind) == (group, kind) for each in kinds):
                found.setdefault((group, kind), []).append(body)
    return found


def _schema_of(kind: Kind, *, later: bool) -> Schema:
    """Return a schema with the fields of all releases, or of the release where it alone has it."""
    for release in ("", kind.release) if later else (kind.release,):
        if schema := Schemas.standard(release).schema_of(kind.api_version, kind.kind):
            return schema
    raise LookupError(kind)


def _change(rng: random.Random, body: dict[str, Any], schema: Schema) -> None:
    """Change one field of an object."""
    holder, known = rng.choice(list(_holders(body, schema)))
    absent = [
        name for name in known.properties
        if name not in holder and name not in {"apiVersion", "kind", "metadata", "status"}
    ]  # fmt: skip
    present = [name for name in holder if name not in {"apiVersion", "kind", "metadata"}]
    act = rng.choice(["add", "add", "drop", "set", "repeat"])
    if act == "add" and absent:
        name = rng.choice(absent)
        holder[name] = _sample(rng, known.properties[name], DEPTH)
    elif act == "drop" and present:
        del holder[rng.choice(present)]
    elif act == "set" and present:
        holder[rng.choice(present)] = rng.choice(ODD)
    elif act == "repeat":
        for name in present:
            if isinstance(holder[name], list) and holder[name]:
                holder[name].append(copy.deepcopy(holder[name][0]))
                return


def _holders(value: Any, schema: Schema):
    """Yield the structs of an object, each with its schema."""
    if isinstance(value, dict) and schema.is_struct:
        yield value, schema
        for name, item in value.items():
            if name != "metadata" and name in schema.properties:
                yield from _holders(item, schema.properties[name])
    elif isinstance(value, dict) and schema.values is not None:
        for item in value.values():
            yield from _holders(item, schema.values)
    elif isinstance(value, list) and schema.item is not None:
        for item in value:
            yield from _holders(item, schema.item)


def _sample(rng: random.Random, schema: Schema, depth: int) -> Any:
    """Return a value of the right type."""
    if schema.is_struct:
        names = sorted(schema.properties)
        chosen = [name for name in names if name in schema.required or rng.random() < 0.5]
        return {name: _sample(rng, schema.properties[name], depth - 1) for name in chosen if depth}
    if schema.values is not None:
        return {"example.com/a": _sample(rng, schema.values, depth - 1)} if depth else {}
    if schema.item is not None:
        return [_sample(rng, schema.item, depth - 1)] if depth else []
    match schema.type, schema.format:
        case "boolean", _:
            return rng.random() < 0.5
        case (("integer" | "number"), _):
            return rng.choice([0, 1, 5, -1])
        case _, "date-time":
            return "2026-01-01T00:00:00Z"
        case _, "quantity":
            return rng.choice(["1", "2Gi", "500m"])
        case _, "int-or-string":
            return rng.choice([1, "10%"])
        case "string", _:
            return rng.choice(["a", "example.com/a", "Always", "Delete", "A b"])
    return {}

"""The scale subresource of workloads: a small object with the number of replicas.

A write to `/scale` is a write to the Scale: its field owners are those of the object that own the
number. Who owns it afterwards owns it in the object, too, by an entry of its own. Source:
k8s.io/apimachinery `pkg/util/managedfields/scalehandler.go`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from dralab.api import fields
from dralab.api.decoding import decoder_of
from dralab.api.kinds import Kind
from dralab.api.schemas import Schemas
from dralab.api.status import ApiError
from dralab.apiserver import managed_fields
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs import admission, patching, writing
from dralab.apiserver.verbs.patching import PatchType
from dralab.apiserver.verbs.state import ownership
from dralab.apiserver.verbs.state.context import Scope
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonDict


def scale_of(scope: Scope, kind: Kind, stored: Stored) -> JsonDict:
    """Return the Scale of an object."""
    value = scope.rules.from_hub(kind, stored.value, scope)
    paths = scope.rules.strategy_of(kind).scale_paths(kind.version)
    meta = value["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec: JsonDict = {}
    if replicas := _at(value, paths.spec):
        spec["replicas"] = replicas
    status: JsonDict = {"replicas": _at(value, paths.status) or 0}
    selector = _at(value, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {part: meta[part] for part in shown if part in meta},
        "spec": spec,
        "status": status,
    }


def selector_text(selector: JsonDict) -> str:
    """Return a label selector as a query has it; a plain map of labels counts as one.

    >>> selector_text({"matchLabels": {"b": "2", "a": "1"}})
    'a=1,b=2'
    """
    plain = selector
    expressions: list[JsonDict] = []
    if "matchLabels" in selector or "matchExpressions" in selector:
        plain = selector.get("matchLabels") or {}
        expressions = selector.get("matchExpressions") or []
    parts = [(key, f"{key}={value}") for key, value in plain.items()]
    for item in expressions:
        key, values = item.get("key", ""), ",".join(sorted(item.get("values") or ()))
        key = str(key)
        text: str = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }.get(item.get("operator", ""), key)
        parts.append((key, text))
    return ",".join(text for _, text in sorted(parts))


def get(scope: Scope, kind: Kind, name: str, namespace: str) -> JsonDict:
    """Return an object's Scale. ApiError for a custom object that says no number of replicas."""
    live = scope.live(kind, namespace, name)
    if kind.custom is not None:
        paths = scope.rules.strategy_of(kind).scale_paths(kind.version)
        if _at(scope.rules.from_hub(kind, live.value, scope), paths.spec) is None:
            why = f'the spec replicas field ".{".".join(paths.spec)}" does not exist'
            causes = {"causes": [{"message": why}]}
            text = f"Internal error occurred: {why}"
            raise ApiError("InternalError", text, code=500, details=causes)
    return scale_of(scope, kind, live)


def put(
    scope: Scope,
    kind: Kind,
    name: str,
    namespace: str,
    scale: JsonDict,
    *,
    owned: list[JsonDict] | None = None,
) -> JsonDict:
    """Set the replicas of an object to those of a Scale.

    `owned` are the owners of the Scale's fields, if an apply has found them.
    """
    given = scale.get("metadata") or {}
    if given.get("name") and given["name"] != name:
        raise ApiError.bad_request(
            f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
        )
    replicas = spec_of(scale).get("replicas") or 0
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        if kind.custom is not None:  # upstream cannot tell of it there
            raise ApiError.bad_request(
                'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
            )
        raise ApiError.bad_request(
            'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal '
            f"{'string' if isinstance(replicas, str) else 'number'} into Go struct field "
            "ScaleSpec.spec.replicas of type int32"
        )
    if replicas < 0 and kind.custom is not None:
        why = "should be a non-negative integer"
        error = fields.invalid_value(".spec.replicas", replicas, why)
        raise fields.invalid(kind.kind, name, [error], group=kind.group)
    if replicas < 0:
        why = "must be greater than or equal to 0"
        error = fields.invalid_value("spec.replicas", replicas, why)
        raise fields.invalid("Scale", name, [error], group="autoscaling")
    paths = scope.rules.strategy_of(kind).scale_paths(kind.version)
    if scope.context.dynamic.active:
        replicas = _admitted(scope, kind, name, namespace, replicas)

    def edit(value: JsonDict) -> JsonDict:
        if revision := given.get("resourceVersion"):
            value["metadata"]["resourceVersion"] = revision
        before = _at(value, paths.spec) or 0
        _set(value, paths.spec, replicas)
        _own(scope, kind, value, (before, replicas), owned)
        return value

    scope.options.applied = True  # who owns the number is said by `edit`

    stored = writing.change(scope, kind, name, namespace, edit, subresource="scale")
    return scale_of(scope, kind, stored)


def _admitted(scope: Scope, kind: Kind, name: str, namespace: str, replicas: int) -> int:
    """Call webhooks and policies for a new Scale; return its replicas then. ApiError."""
    old = scale_of(scope, kind, scope.live(kind, namespace, name))
    new: JsonDict = orjson.loads(orjson.dumps(old))
    new["spec"]["replicas"] = replicas
    review = admission.review_of(
        scope,
        kind,
        "UPDATE",
        namespace=namespace,
        name=name,
        value=new,
        old=old,
        subresource="scale",
    )
    review.internal, review.form = scope.internal, ("autoscaling", "v1", "Scale")
    scope.context.dynamic.admit(review)
    scope.context.dynamic.validate(review)
    found = spec_of(new).get("replicas")
    return found if isinstance(found, int) else replicas


def patch(
    scope: Scope, kind: Kind, name: str, namespace: str, body: Any, *, type: PatchType
) -> JsonDict:
    """Patch an object's Scale."""
    scale_kind = SCALE
    with scope.store.lock:
        live = scope.live(kind, namespace, name)
        current = orjson.loads(orjson.dumps(scale_of(scope, kind, live)))
        shown = current["metadata"].pop("resourceVersion", None)
        owned: list[JsonDict] | None = None
        if type == "apply":
            changed, owned = _applied(scope, kind, live, current, body)
        else:
            changed = patching.edited(scope, scale_kind, current, body, type)
        if changed["metadata"].get("resourceVersion") == shown:
            changed["metadata"].pop("resourceVersion", None)
        return put(scope, kind, name, namespace, changed, owned=owned)


def _applied(
    scope: Scope, kind: Kind, live: Stored, current: JsonDict, config: Any
) -> tuple[JsonDict, list[JsonDict]]:
    """Return a Scale after a server-side apply, and the owners of its fields. ApiError."""
    meta = current["metadata"]
    patching.check_config(SCALE, meta["name"], meta.get("namespace", ""), config)
    path = scope.rules.strategy_of(kind).scale_paths(kind.version).spec
    entries = live.value["metadata"].get("managedFields") or ()
    before = {**current, "metadata": {**meta, "managedFields": owners_in_scale(entries, path)}}
    who = ownership.writer(scope, SCALE, subresource="scale")
    schema = Schemas.standard().schema_of(SCALE.api_version, SCALE.kind)
    found = managed_fields.apply(before, config, schema, who, force=scope.options.force)
    owned = found["metadata"].pop("managedFields", None) or []
    decoder = decoder_of(SCALE.api_version, SCALE.kind)
    if decoder is not None:
        decoder.converted(found)
        found = decoder.decode(found)[0]
    return found, owned


def _plain_scale(replicas: int) -> JsonDict:
    return {"spec": {"replicas": replicas} if replicas else {}}


def _own(
    scope: Scope,
    kind: Kind,
    value: JsonDict,
    numbers: tuple[int, int],
    owned: list[JsonDict] | None,
) -> None:
    """Record who owns the number of replicas of an object whose Scale was written."""
    if not scope.context.managed_fields:
        return
    meta = value["metadata"]
    entries = meta.get("managedFields") or []
    path = scope.rules.strategy_of(kind).scale_paths(kind.version).spec
    if owned is None:
        old, new = (_plain_scale(number) for number in numbers)
        old["metadata"] = {"managedFields": owners_in_scale(entries, path)}
        who = ownership.writer(scope, SCALE, subresource="scale")
        schema = Schemas.standard().schema_of(SCALE.api_version, SCALE.kind)
        owned = managed_fields.update(old, new, schema, who)
    found = owners_in_object(entries, owned, path, kind.api_version)
    if found:
        meta["managedFields"] = found
    else:
        meta.pop("managedFields", None)


SCALE = Kind(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    singular="scale",
    namespaced=True,
    hub="autoscaling/scales",
)


def _at(value: JsonDict, path: tuple[str, ...]) -> Any:
    found: Any = value
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _set(value: JsonDict, path: tuple[str, ...], item: Any) -> None:
    found = value
    for part in path[:-1]:
        below = found.get(part)
        if not isinstance(below, dict):
            below = found[part] = {}
        found = below
    found[path[-1]] = item


Entry = Mapping[str, Any]
IN_SCALE: Final = ("spec", "replicas")
SELF: Final = "."


def owners_in_scale(entries: Iterable[Entry], path: tuple[str, ...]) -> list[JsonDict]:
    """Return the entries of a Scale; `path` is where the object has the number of replicas."""
    fields = _only(IN_SCALE)
    return [
        {**entry, "apiVersion": SCALE.api_version, "fieldsV1": fields}
        for entry in _distinct(entries)
        if _has(entry.get("fieldsV1"), path)
    ]


def owners_in_object(
    entries: Iterable[Entry], scale: Iterable[Entry], path: tuple[str, ...], api_version: str
) -> list[JsonDict]:
    """Return the entries of an object after a write to its Scale, whose entries are `scale`.

    An entry of an apply stays as it is; of all others the number is taken.
    """
    left = {_identity(entry): entry for entry in scale if _has(entry.get("fieldsV1"), IN_SCALE)}
    found: list[JsonDict] = []
    for entry in _distinct(entries):
        if not _has(entry.get("fieldsV1"), path):
            found.append(dict(entry))
        elif entry.get("operation") == "Apply" and _identity(entry) in left:
            found.append(dict(entry))
            del left[_identity(entry)]
        elif fields := _without(entry["fieldsV1"], path):
            found.append({**entry, "fieldsV1": fields})
    # A new entry has no time: upstream looks it up by a name that the object does not have.
    found += [
        {name: item for name, item in entry.items() if name != "time"}
        | {"apiVersion": api_version, "fieldsV1": _only(path)}
        for entry in left.values()
    ]
    return sorted(found, key=lambda entry: (entry.get("operation", ""), entry.get("time", "")))


def _distinct(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Return the entries by their names, ignoring times: the last of a name counts."""
    return {(*_identity(entry), entry.get("apiVersion")): entry for entry in entries}.values()


def _identity(entry: Entry) -> tuple[Any, ...]:
    return entry.get("manager"), entry.get("operation"), entry.get("subresource", "")


def _only(path: tuple[str, ...]) -> JsonDict:
    found: JsonDict = {}
    for name in reversed(path):
        found = {f"f:{name}": found}
    return found


def _has(fields: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(fields, Mapping) or f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True


def _without(fields: JsonDict, path: tuple[str, ...]) -> JsonDict:
    """Return a set of fields without one of them."""
    step = f"f:{path[0]}"
    rest = {name: item for name, item in fields.items() if name != step}
    if len(path) == 1:
        return rest
    below = _without(fields[step], path[1:])
    if not below:
        return rest
    return rest | {step: {} if [*below] == [SELF] else below}

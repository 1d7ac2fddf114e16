"""Patches: JSON patch, merge patch, strategic merge and server-side apply, on stored objects."""

from typing import Any, Final, Literal

import orjson

from dralab.api import fields
from dralab.api.kinds import Kind
from dralab.api.scalar_decoding import DecodingError
from dralab.api.schemas import Schema
from dralab.api.status import ApiError
from dralab.apiserver import managed_fields
from dralab.apiserver.managed_fields import FieldManager
from dralab.apiserver.resources import ownership, typed_objects, writing
from dralab.apiserver.resources.context import Context, key_of
from dralab.apiserver.resources.options import WriteOptions
from dralab.apiserver.storage import Stored
from dralab.values import patches
from dralab.values.json_types import JsonDict
from dralab.values.patches import PatchError, TooManyOperations
from dralab.values.strategic import strategic_merge

INTERNAL: Final = 500
PatchType = Literal["json", "merge", "strategic", "apply"]


def patch(
    context: Context,
    kind: Kind,
    name: str,
    patch: Any,
    *,
    namespace: str,
    options: WriteOptions,
    type: PatchType,
    subresource: str = "",
) -> tuple[Stored, bool]:
    """Change an object by a patch; also return whether that created it."""
    if type == "apply":
        return _apply(
            context, kind, name, patch, namespace, options=options, subresource=subresource
        )

    def edit(current: JsonDict) -> JsonDict:
        return edited(context, kind, current, patch, type, options)

    stored = writing.change(
        context, kind, name, namespace, edit, options=options, subresource=subresource, typed=True
    )
    return stored, False


def edited(  # noqa: PLR0917 - all of it decides
    context: Context,
    kind: Kind,
    current: JsonDict,
    patch: Any,
    type: PatchType,
    options: WriteOptions,
) -> JsonDict:
    """Return a fresh object after a patch, in its typed form; ApiError if it does not fit."""
    try:
        if type == "json":
            value = patches.json_patch(current, patch)
        elif not isinstance(patch, dict):
            raise ApiError.bad_request(
                f"json: cannot unmarshal {_go_type(patch)} into Go value of type "
                "map[string]interface {}"
            )
        elif type == "strategic":
            value = strategic_merge(current, patch, ownership.schema_of(context, kind))
        else:
            value = patches.merge_patch(current, patch)
    except TooManyOperations as error:
        raise ApiError("RequestEntityTooLarge", str(error)) from error
    except PatchError as error:
        if type == "json":
            raise ApiError(
                "Invalid",
                "the server rejected our request due to an error in our request",
                details={},
            ) from error
        raise _refused(patch, str(error), type) from error
    if not isinstance(value, dict):
        raise _refused(patch, "a patched object must be an object", type)
    # No patch turns an object into one of another kind.
    value["kind"], value["apiVersion"] = kind.kind, kind.api_version
    try:
        value, unknown = typed_objects.typed(context, kind, value, options)
    except DecodingError as error:
        raise _refused(patch, str(error), type) from error
    sentences = typed_objects.complaints(unknown, options.duplicates)
    if sentences and options.validation == "Strict":
        raise _refused(patch, f"strict decoding error: {', '.join(sentences)}", type)
    if options.validation == "Warn":
        options.warnings += sentences
    options.duplicates = ()
    return value


def merged_copy(value: JsonDict) -> JsonDict:
    """Return a copy of an object that shares nothing with it."""
    found: JsonDict = orjson.loads(orjson.dumps(value))
    return found


def _refused(patch: Any, why: str, type: PatchType) -> ApiError:
    """Return the Status for a patch whose result is not an object of the kind."""
    shown = _go_map(patch) if type == "strategic" else orjson.dumps(patch).decode()
    if type == "strategic" and why.startswith("json: cannot unmarshal"):
        why = f"unrecognized type: {why.rpartition(' ')[2]}"
    return fields.invalid("", "", [fields.invalid_value("patch", shown, why)])


def _go_map(value: Any) -> str:
    """Return a value as Go prints it."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_map, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _go_type(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "bool" if isinstance(value, bool) else "null" if value is None else "number"


def _apply(
    context: Context,
    kind: Kind,
    name: str,
    config: Any,
    namespace: str,
    *,
    options: WriteOptions,
    subresource: str,
) -> tuple[Stored, bool]:
    """Apply a configuration to an object; create the object if there is none."""
    _check_config(kind, name, config)
    schema = ownership.schema_of(context, kind)
    with context.store.lock:
        live = context.find(key_of(kind, namespace, name))
        if live is None and subresource:
            raise ApiError.not_found(kind.plural, name, group=kind.group)
        who = ownership.writer(context, kind, options, subresource=subresource)
        options.applied = True
        if live is None:
            writing.check_creation(context, kind, name, namespace, options)
            made = _applied(None, config, schema, who, force=options.force)
            return writing.create(context, kind, made, namespace, options), True

        def edit(current: JsonDict) -> JsonDict:
            given = (config.get("metadata") or {}).get("uid")
            if given and given != current["metadata"]["uid"]:
                raise ApiError.conflict(
                    kind.plural,
                    name,
                    f"uid mismatch: the provided object specified uid {given}, and no existing "
                    "object was found",
                    group=kind.group,
                )
            return _applied(current, config, schema, who, force=options.force)

        stored = writing.change(
            context, kind, name, namespace, edit, options=options, subresource=subresource
        )
        return stored, False


def _applied(
    live: JsonDict | None,
    config: JsonDict,
    schema: Schema | None,
    who: FieldManager,
    *,
    force: bool,
) -> JsonDict:
    try:
        return managed_fields.apply(live, config, schema, who, force=force)
    except ApiError as error:
        if error.code != INTERNAL:
            raise
        # A real server says 500, but the mistake is the client's.
        raise ApiError.bad_request(error.message) from error


def _check_config(kind: Kind, name: str, config: Any) -> None:
    if not isinstance(config, dict):
        raise ApiError.bad_request("error decoding YAML: expected an object")
    version, kind_name = config.get("apiVersion") or "", config.get("kind") or ""
    if not version or not kind_name:
        group, _, short = str(version).rpartition("/")
        raise ApiError.bad_request(f"invalid object type: {group}/{short}, Kind={kind_name}")
    meta = config.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        raise ApiError.bad_request("metadata: expected an object")
    given = (meta or {}).get("name") or ""
    if given and given != name:
        raise ApiError.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )
    config["metadata"] = (meta or {}) | {"name": name}
    if kind_name != kind.kind:
        raise ApiError.bad_request(
            f'{kind_name} in version "{version}" cannot be handled as a {kind.kind}'
        )

"""Patches: JSON patch, merge patch, strategic merge and server-side apply, on stored objects."""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import orjson

from dralab.api import fields
from dralab.api.go_structs import is_struct
from dralab.api.kinds import Kind
from dralab.api.scalar_decoding import DecodingError
from dralab.api.status import ApiError
from dralab.apiserver import managed_fields
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs import creating, writing
from dralab.apiserver.verbs.state import ownership, typed_objects
from dralab.apiserver.verbs.state.context import Scope, key_of
from dralab.apiserver.verbs.state.options import NO_REPEATS
from dralab.values import patches
from dralab.values.go_text import go_value
from dralab.values.json_patches import go_json_kind, json_patch
from dralab.values.json_types import JsonDict
from dralab.values.patches import MalformedPatch, PatchError, TooManyOperations, UnsupportedPatch
from dralab.values.strategic import strategic_merge

SCHEME: Final = "pkg/runtime/scheme.go:111"
UNMARSHALLED: Final = re.compile(r"json: cannot unmarshal (?P<given>\w+).* of type (?P<wanted>\S+)")
PatchType = Literal["json", "merge", "strategic", "apply"]


def patch(
    scope: Scope,
    kind: Kind,
    name: str,
    patch: Any,
    *,
    namespace: str = "",
    type: PatchType = "merge",
    subresource: str = "",
) -> tuple[Stored, bool]:
    """Change an object by a patch; also return whether that created it."""
    if type == "apply":
        return _apply(scope, kind, name, patch, namespace, subresource=subresource)

    def edit(current: JsonDict) -> JsonDict:
        value = edited(scope, kind, current, patch, type)
        _check_identity(kind, name, current["metadata"], value.get("metadata") or {})
        return value

    stored = writing.change(scope, kind, name, namespace, edit, subresource=subresource, typed=True)
    return stored, False


def edited(scope: Scope, kind: Kind, current: JsonDict, patch: Any, type: PatchType) -> JsonDict:
    """Return a fresh object after a patch, in its typed form; ApiError if it does not fit."""
    try:
        if type == "json":
            if not isinstance(patch, list | None):
                raise undecodable(
                    f"json: cannot unmarshal {go_json_kind(patch)} into Go value of type "
                    "[]handlers.jsonPatchOp",
                    type,
                )
            for each in patch or ():
                if not isinstance(each, dict | None):
                    wrong = f"json: cannot unmarshal {go_json_kind(each)} into Go value of type"
                    raise undecodable(f"{wrong} handlers.jsonPatchOp", type)
            value = json_patch(current, patch or [])  # null has no operations, in Go
        elif type == "merge" and patch is None:
            raise ApiError.bad_request("Invalid JSON Patch")
        elif patch is not None and not isinstance(patch, dict):
            raise undecodable(
                f"json: cannot unmarshal {go_json_kind(patch)} into Go value of type "
                "map[string]interface {}",
                type,
            )
        elif type == "strategic":
            value = strategic_merge(current, patch or {}, ownership.schema_of(scope.rules, kind))
        else:
            value = patches.server_merge_patch(current, patch)
    except TooManyOperations as error:
        why = f"Request entity too large: {error}"
        raise ApiError("RequestEntityTooLarge", why) from error
    except MalformedPatch as error:
        raise ApiError.bad_request(str(error)) from error
    except PatchError as error:
        if type == "json" or isinstance(error, UnsupportedPatch):
            raise ApiError(
                "Invalid",
                "the server rejected our request due to an error in our request",
                details={},
            ) from error
        raise ApiError.failed(str(error)) from error
    if not isinstance(value, dict):
        raise _refused(patch, "a patched object must be an object", type)
    result = value if type == "strategic" else dict(value)
    if type != "strategic":
        _check_kind(scope, kind, result, current["metadata"]["name"])
    value["kind"], value["apiVersion"] = kind.kind, kind.api_version
    strategic = type == "strategic"
    # Decoding may change what the object has from the patch, which errors show.
    patch = merged_copy(patch or {}) if strategic else patch
    try:
        value, unknown = typed_objects.typed(scope, kind, value, converts=strategic)
    except DecodingError as error:
        why = typed_objects.converted_text(str(error)) if strategic else str(error)
        shown = patch if strategic else result
        raise _refused(shown, why, type, alone=error.alone) from error
    _complain(scope, unknown, patch if strategic else result, type)
    return value


def _complain(scope: Scope, unknown: Sequence[str], shown: Any, type: PatchType) -> None:
    """Refuse, warn of or ignore unknown and repeated fields, as the client asked. ApiError."""
    sentences = typed_objects.complaints(unknown, scope.options.repeats.paths)
    if sentences and scope.options.validation == "Strict":
        raise _refused(shown, f"strict decoding error: {', '.join(sentences)}", type)
    if scope.options.validation == "Warn":
        scope.warnings += sentences
    scope.options.repeats = NO_REPEATS


def undecodable(why: str, type: PatchType) -> ApiError:
    """Return the error for a body that is not a patch of that type."""
    match type:
        case "strategic":
            return ApiError.bad_request(why)
        case "apply":
            return ApiError.bad_request(f"error decoding YAML: {why}")
        case _:
            return ApiError.bad_request(f"error decoding patch: {why}")


def _check_kind(scope: Scope, kind: Kind, value: JsonDict, name: str) -> None:
    """Refuse a patch that turns an object into one of another kind. ApiError.

    An object without a kind is of its old one; one without a version is not decoded at all.
    """
    version, given = value.get("apiVersion"), value.get("kind")
    for part, item in (("apiVersion", version), ("kind", given)):
        if item is not None and not isinstance(item, str):
            why = (
                "couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{go_json_kind(item)} into Go struct field .{part} of type string"
            )
            raise _refused(value, why, "merge")
    if (version, given) == (kind.api_version, kind.kind):
        return
    if kind.custom is not None:
        raise _other_custom_kind(kind, value, version or "", given or "", name)
    if not version and given and given != kind.kind:
        why = f'no kind "{given}" is registered for the internal version of group "{kind.group}"'
        raise _refused(value, f'{why} in scheme "{SCHEME}"', "merge")
    if not version:
        writing.check_name("", name)
    given = given or kind.kind
    if (version, given) == (kind.api_version, kind.kind):
        return
    if other := scope.context.kinds.of_object(str(version), given):
        package = kind.group.partition(".")[0] or "core"
        this, wanted = f"{other.version}.{other.kind}", f"{package}.{kind.kind}"
        raise _refused(value, f"converting ({this}) to ({wanted}): unknown conversion", "merge")
    why = f'no kind "{given}" is registered for version "{version}" in scheme "{SCHEME}"'
    raise _refused(value, why, "merge")


def _other_custom_kind(
    kind: Kind, value: JsonDict, version: str, given: str, name: str
) -> ApiError:
    """Return the error for a custom object that says another kind or version, or none."""
    if not given:
        shown = orjson.dumps(dict(sorted(value.items()))).decode()
        return _refused(value, f"Object 'Kind' is missing in '{shown}'", "merge")
    if not version:
        why = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        return ApiError("InternalError", f"Internal error occurred: {why}", code=500)
    errors = [
        fields.invalid_value(field, said, f"must be {wanted}")
        for field, said, wanted in (
            ("kind", given, kind.kind),
            ("apiVersion", version, kind.api_version),
        )
        if said != wanted
    ]
    group, _, _ = version.rpartition("/")
    return fields.invalid(given, name, errors, group=group)


def _unconverted(given: str, wanted: str) -> str:
    """Return Go's message for a JSON value that cannot be converted to a Go type."""
    shown = {"object": "map", "array": "slice", "number": "int64"}.get(given, given)
    if wanted.startswith("[]"):
        return f"cannot restore slice from {shown}"
    if wanted.startswith("map["):
        return f"cannot restore map from {shown}"
    # A type with a name of its own is a struct, if there is a message of that name, or a text.
    plain = "string" if "." in wanted and not is_struct(wanted) else wanted
    if plain == "string" and given == "number":
        return f"cannot convert int64 to {wanted}"
    if "." in plain:
        return f"cannot restore struct from: {shown}"
    return f"unrecognized type: {plain}"


def _check_identity(kind: Kind, name: str, old: JsonDict, new: JsonDict) -> None:
    """Refuse a patch that changes an object's identity. ApiError."""
    if kind.namespaced and new.get("namespace") not in {None, "", old["namespace"]}:
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    writing.check_name(new.get("name") or "", name)


def merged_copy(value: JsonDict) -> JsonDict:
    """Return a copy of an object that shares nothing with it."""
    found: JsonDict = orjson.loads(orjson.dumps(value))
    return found


def _refused(patch: Any, why: str, type: PatchType, *, alone: bool = False) -> ApiError:
    """Return the Status for a patch whose result is not an object of the kind.

    `alone` says that the value is of a type that reads itself, such as a time.
    """
    if type == "strategic":
        shown = go_value(patch)
    else:
        # What is decoded: the fields of the object in order, those below as they are.
        found = dict(sorted(patch.items())) if isinstance(patch, dict) else patch
        shown = orjson.dumps(found).decode()
    if type == "strategic" and (wrong := UNMARSHALLED.fullmatch(why)):
        given, wanted = wrong["given"], wrong["wanted"]
        if alone:
            why = f"json: cannot unmarshal {given} into Go value of type {wanted}"
        else:
            why = _unconverted(given, wanted)
    return fields.invalid("", "", [fields.invalid_value("patch", shown, why)])


def _apply(
    scope: Scope, kind: Kind, name: str, config: Any, namespace: str, *, subresource: str
) -> tuple[Stored, bool]:
    """Apply a configuration to an object; create the object if there is none."""
    check_config(kind, name, namespace, config)
    schema = ownership.schema_of(scope.rules, kind)
    with scope.store.lock:
        live = scope.find(key_of(kind, namespace, name))
        if live is None and subresource:
            raise ApiError.not_found(kind.plural, name, group=kind.group)
        who = ownership.writer(scope, kind, subresource=subresource)
        scope.options.applied = True
        if live is None:
            writing.check_creation(scope, kind, name, namespace)
            made = managed_fields.apply(None, config, schema, who, force=scope.options.force)
            _check_repeats(scope)
            if given := made["metadata"].get("uid"):
                raise ApiError.conflict(
                    kind.plural,
                    name,
                    f"uid mismatch: the provided object specified uid {given}, and no existing "
                    "object was found",
                    group=kind.group,
                )
            return creating.create(scope, kind, made, namespace), True

        def edit(current: JsonDict) -> JsonDict:
            value = managed_fields.apply(current, config, schema, who, force=scope.options.force)
            _check_repeats(scope)
            _check_identity(kind, name, current["metadata"], config["metadata"])
            return value

        stored = writing.change(scope, kind, name, namespace, edit, subresource=subresource)
        return stored, False


def _check_repeats(scope: Scope) -> None:
    """Refuse or warn of keys that an applied configuration gives twice. ApiError."""
    lines, scope.options.repeats = scope.options.repeats.lines, NO_REPEATS
    if lines and scope.options.validation == "Strict":
        why = f"error converting YAML to JSON: {typed_objects.already_set(lines)}"
        raise ApiError.bad_request(f"error strict decoding YAML: {why}")
    if scope.options.validation != "Ignore":
        scope.warnings += lines


def check_config(kind: Kind, name: str, namespace: str, config: Any) -> None:
    """Refuse a configuration that is not one of that object. ApiError."""
    if config is None:  # an empty body
        config = {}
    if not isinstance(config, dict):
        raise ApiError.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {go_json_kind(config)} into Go value of type map[string]interface {{}}"
        )
    version, kind_name = config.get("apiVersion") or "", config.get("kind") or ""
    if not version or not kind_name or (kind_name, _group_of(version)) != (kind.kind, kind.group):
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
    if kind.namespaced and (meta or {}).get("namespace") not in {None, "", namespace}:
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    config["metadata"] = (meta or {}) | {"name": name}


def _group_of(version: Any) -> str:
    return str(version).rpartition("/")[0]

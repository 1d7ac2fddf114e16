"""Type checking of ValidatingAdmissionPolicies: errors of their expressions about objects.

The expressions of a stored policy compile for objects of any type. Here they are compiled once more
for each kind that the policy names, by its schema; what does not fit becomes a warning in the
status of the policy, and changes nothing else.

Source: k8s.io/apiserver `pkg/admission/plugin/policy/validating/typechecking.go`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dralab import cel
from dralab.api.kinds import Kind, Kinds
from dralab.api.schemas import OBJECT_META, Schemas
from dralab.apiserver.access.admission.policies.definitions import (
    policy_environment,
    read_variables,
)
from dralab.cel.environment import Environment
from dralab.cel.schema_types import SchemaType, type_of_schema
from dralab.values.json_types import JsonDict

MOST: Final = 10  # kinds that are checked for one policy
COPIED: Final = ("type", "format", "enum", "required")


def expression_warnings(policy: Mapping[str, Any], kinds: Kinds) -> list[JsonDict]:
    """Return the warnings about a policy's expressions, as its status has them."""
    spec = policy.get("spec") or {}
    checked = [(kind, _environment(spec, kind, kinds)) for kind in kinds_of(spec, kinds)]
    found = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for part in ("expression", "messageExpression"):
            if not (text := validation.get(part)):
                continue
            told = [
                f"{_shown(kind)}: {why}\n"
                for kind, environment in checked
                if environment is not None and (why := _problems(text, environment))
            ]
            if told:
                field = f"spec.validations[{index}].{part}"
                found.append({"fieldRef": field, "warning": "\n".join(told)})
    return found


def kinds_of(spec: Mapping[str, Any], kinds: Kinds) -> list[Kind]:
    """Return the kinds that a policy names one by one: wildcards and subresources do not count."""
    found: dict[Kind, None] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for kind in _kinds_of_rule(rule, kinds):
            found[kind] = None
            if len(found) == MOST:
                break
    return sorted(found, key=lambda kind: (kind.group, kind.version, kind.kind))


def _kinds_of_rule(rule: Mapping[str, Any], kinds: Kinds) -> Iterator[Kind]:
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    if "*" in groups or "*" in versions:
        return
    for group in sorted(groups):
        for version in sorted(versions):
            for plural in sorted(rule.get("resources") or ()):
                kind = kinds.get(group, version, plural)
                if kind is not None:
                    yield kind


def _shown(kind: Kind) -> str:
    """Return a kind as Go prints it: `apps/v1, Kind=Deployment`."""
    version = kind.api_version if kind.group else f"/{kind.version}"
    return f"{version}, Kind={kind.kind}"


def _environment(spec: Mapping[str, Any], kind: Kind, kinds: Kinds) -> Environment | None:
    """Return the environment of a policy for the objects of one kind; None without a schema."""
    of_object = declared_type(kind)
    if of_object is None:
        return None
    named = spec.get("paramKind") or {}
    structs = of_object.structs()
    variables = {"object": of_object.type, "oldObject": of_object.type}
    base = policy_environment(params=bool(named), variables=bool(spec.get("variables")))
    given = kinds.of_object(named.get("apiVersion") or "", named.get("kind") or "")
    if given is not None and (of_params := declared_type(given, "params")) is not None:
        structs |= of_params.structs()
        variables["params"] = of_params.type
    base = base.extended(variables=variables, structs=structs)
    return replace(read_variables(spec, base)[1], result=())


def _problems(text: str, environment: Environment) -> str:
    try:
        cel.compile_expression(text, environment)
    except cel.CompileError as error:
        return "\n".join(problem.located(text) for problem in error.problems)
    return ""


def declared_type(kind: Kind, name: str = "object") -> SchemaType | None:
    """Return the type of a kind's objects; None if nothing is known of them."""
    schemas = Schemas.standard(kind.release)
    if kind.custom is None:
        found = schemas.name_of(kind.api_version, kind.kind)
        return (
            None if found is None else type_of_schema(_expanded(schemas, {"$ref": found}, ()), name)
        )
    custom = kind.custom if isinstance(kind.custom, Mapping) else {}
    given = (custom.get("schema") or {}).get("openAPIV3Schema")
    if not given:
        return None
    properties = {
        **(given.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": _expanded(schemas, {"$ref": OBJECT_META}, ()),
    }
    return type_of_schema({**given, "type": "object", "properties": properties}, name)


def _expanded(schemas: Schemas, raw: Mapping[str, Any], within: tuple[str, ...]) -> JsonDict:
    """Return a definition with all that it refers to in its place; nothing where it would recur."""
    if "$ref" in raw:
        name = raw["$ref"]
        if name in within:
            return {}
        return _expanded(schemas, schemas.shown(name), (*within, name))
    if raw.get("format") == "int-or-string":
        return {"x-kubernetes-int-or-string": True}
    found: JsonDict = {key: raw[key] for key in COPIED if key in raw}
    if found.get("format") == "quantity":
        return {"type": "string"}
    if "items" in raw:
        found["items"] = _expanded(schemas, raw["items"], within)
    if isinstance(raw.get("additionalProperties"), Mapping):
        found["additionalProperties"] = _expanded(schemas, raw["additionalProperties"], within)
    if "properties" in raw:
        found["properties"] = {
            key: _expanded(schemas, part, within) for key, part in raw["properties"].items()
        }
    return found

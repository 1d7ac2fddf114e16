"""CustomResourceDefinitions: kinds that users bring.

What their objects must be is left to the server; this is about the definitions themselves.
Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralab.api import fields, structural
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict

HUB: Final = "apiextensions.k8s.io/customresourcedefinitions"
FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
SCOPES: Final = ("Cluster", "Namespaced")
MAX_DEPTH: Final = 100


class DefinitionStrategy(Strategy):
    """Definitions of custom resources."""

    unconditional = False
    status_keeps = frozenset()

    def default(self, value: JsonDict) -> None:
        """Derive the names that were left out."""
        spec = value.setdefault("spec", {})
        given = spec.setdefault("names", {})
        kind = given.get("kind") or ""
        if kind:
            given.setdefault("singular", kind.lower())
            given.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {}).setdefault("strategy", "None")

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without accepted names; the stored version is known already."""
        value["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [
                version.get("name")
                for version in value["spec"].get("versions") or ()
                if version.get("storage")
            ],
        }

    def deletion_finalizers(self) -> list[str]:
        """Return what keeps a definition until its objects are gone."""
        return [FINALIZER]

    def marked(self, value: JsonDict, now: str) -> None:
        """Note that the objects will go, too."""
        status = dict(value.get("status") or {})
        status["conditions"] = [
            *(status.get("conditions") or []),
            {
                "type": "Terminating",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion "
                "will begin soon",
            },
        ]
        value["status"] = status

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with a definition."""
        spec = value["spec"]
        given = spec.get("names") or {}
        errors: list[FieldError] = []
        wanted = f"{given.get('plural', '')}.{spec.get('group', '')}"
        if value["metadata"].get("name") != wanted:
            why = 'must be spec.names.plural+"."+spec.group'
            name = value["metadata"].get("name")
            errors.append(fields.invalid_value("metadata.name", name, why))
        if not spec.get("group"):
            errors.append(fields.required("spec.group"))
        else:
            group = spec["group"]
            errors += [
                fields.invalid_value("spec.group", group, why)
                for why in names.subdomain_problems(group)
            ]
            if "." not in group:
                why = "should be a domain with at least one dot"
                errors.append(fields.invalid_value("spec.group", group, why))
        if not spec.get("scope"):
            errors.append(fields.required("spec.scope"))
        elif spec["scope"] not in SCOPES:
            errors.append(fields.not_supported("spec.scope", spec["scope"], SCOPES))
        errors += _names_errors(given)
        errors += _version_errors(spec.get("versions") or ())
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with a changed definition."""
        return [*self.validate(new), *change_errors(new, old)]


def change_errors(new: JsonDict, old: JsonDict) -> Iterator[FieldError]:
    """Yield what is wrong with the change: group, scope and names of the kind stay."""
    before, after = old["spec"], new["spec"]
    for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
        had, has = _at(before, path), _at(after, path)
        if had != has:
            yield fields.invalid_value(".".join(("spec", *path)), has, "field is immutable")


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _names_errors(given: JsonDict) -> Iterator[FieldError]:
    for part in ("plural", "singular", "kind", "listKind"):
        name = given.get(part) or ""
        where = f"spec.names.{part}"
        if not name:
            yield fields.required(where)
            continue
        for why in names.label_problems(name.lower()):
            yield fields.invalid_value(where, name, why)
        if part in {"plural", "singular"} and name != name.lower():
            for why in names.label_problems(name):
                yield fields.invalid_value(where, name, why)
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        why = "kind and listKind may not be the same"
        yield fields.invalid_value("spec.names.listKind", given["listKind"], why)


def _version_errors(versions: Any) -> Iterator[FieldError]:
    if not versions:
        why = "must have exactly one version marked as storage version"
        yield fields.required("spec.versions", why)
        return
    seen: set[str] = set()
    stored = 0
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        for why in names.label_problems(name):
            yield fields.invalid_value(f"{path}.name", name, why)
        if name in seen:
            yield fields.duplicate(f"{path}.name", name)
        seen.add(name)
        stored += bool(version.get("storage"))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        at = f"{path}.schema.openAPIV3Schema"
        if schema is None:
            yield fields.required(at, "schemas are required")
            continue
        if schema.get("type") != "object":
            why = "must be object at the root"
            yield (
                fields.invalid_value(f"{at}.type", schema["type"], why)
                if schema.get("type")
                else fields.required(f"{at}.type", "must not be empty at the root")
            )
        yield from _structural_errors(schema, at, 0)
    if stored != 1:
        why = "must have exactly one version marked as storage version"
        yield fields.invalid_value("spec.versions", list(versions), why)


def _structural_errors(schema: Any, path: str, depth: int) -> Iterator[FieldError]:
    """Yield where a schema does not say what its values are: then they cannot be pruned."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if depth and not schema.get("type") and not free:
        kind = "array items" if path.endswith(".items") else "object fields"
        yield fields.required(f"{path}.type", f"must not be empty for specified {kind}")
    yield from _pattern_errors(schema, path, depth)
    if schema.get("type") == "array" and "items" not in schema:
        yield fields.required(f"{path}.items", "must be specified")
    for name, part in (schema.get("properties") or {}).items():
        yield from _structural_errors(part, f"{path}.properties[{name}]", depth + 1)
    yield from _structural_errors(schema.get("items"), f"{path}.items", depth + 1)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        if schema.get("properties"):
            why = "additionalProperties and properties are mutual exclusive"
            yield fields.forbidden(f"{path}.additionalProperties", why)
        yield from _structural_errors(extra, f"{path}.additionalProperties", depth + 1)


def _pattern_errors(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[FieldError]:
    """Yield the patterns that are none: they would fail at every object, long after."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (problem := structural.pattern_problem(pattern)):
        why = f"must be a valid regular expression, but isn't: {problem}"
        yield fields.invalid_value(f"{path}.pattern", pattern, why)
    if depth > MAX_DEPTH:
        return
    # Below these a schema need not be structural, but is used all the same.
    for word in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(schema.get(word) or ()):
            if isinstance(part, Mapping):
                yield from _nested_patterns(part, f"{path}.{word}[{index}]", depth + 1)
    if isinstance(schema.get("not"), Mapping):
        yield from _nested_patterns(schema["not"], f"{path}.not", depth + 1)


def _nested_patterns(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[FieldError]:
    yield from _pattern_errors(schema, path, depth)
    properties = schema.get("properties") or {}
    parts = {f"{path}.properties[{name}]": part for name, part in properties.items()}
    parts |= {f"{path}.{word}": schema.get(word) for word in ("items", "additionalProperties")}
    for where, part in parts.items():
        if isinstance(part, Mapping) and depth <= MAX_DEPTH:
            yield from _nested_patterns(part, where, depth + 1)

"""CustomResourceDefinitions: kinds that users bring.

What their objects must be is left to the server; this is about the definitions themselves.
Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from dralab.api import fields
from dralab.api.core.definition_versions import NO_VERSIONS, shared_errors, version_errors
from dralab.api.core.webhook_clients import (
    default_webhook_client,
    review_version_errors,
    webhook_client_errors,
)
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

HUB: Final = "apiextensions.k8s.io/customresourcedefinitions"
FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
SCOPES: Final = ("Cluster", "Namespaced")
STRATEGIES: Final = ("None", "Webhook")
APPROVAL: Final = "api-approved.kubernetes.io"
APPROVAL_RULES: Final = "https://github.com/kubernetes/enhancements/pull/1111"
PROTECTED: Final = (".k8s.io", ".kubernetes.io")


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
        conversion = spec.setdefault("conversion", {})
        conversion.setdefault("strategy", "None")
        default_webhook_client((conversion.get("webhook") or {}).get("clientConfig"))

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
        """Note that the objects will be deleted, too."""
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
        """Return the errors of a definition."""
        return [
            *self.name_errors(value),
            *self.spec_errors(value),
            *_stored_errors(value["spec"]),
            *_approval_errors(value["metadata"], value["spec"]),
            *_unknown_fields_errors(value["spec"], {}),
        ]

    def name_errors(self, value: JsonDict) -> Iterator[FieldError]:
        """Yield the errors of the name of a new definition."""
        spec, meta = value["spec"], value["metadata"]
        given = spec.get("names") or {}
        wanted = f"{given.get('plural', '')}.{spec.get('group', '')}"
        for part in ("generateName", "name"):
            name = meta.get(part)
            if name != wanted and (name or part == "name"):
                why = 'must be spec.names.plural+"."+spec.group'
                yield fields.invalid_value(f"metadata.{part}", name, why)

    def spec_errors(self, value: JsonDict) -> Iterator[FieldError]:
        """Yield the errors of the spec of a definition."""
        spec = value["spec"]
        given = spec.get("names") or {}
        group = spec.get("group") or ""
        if not group:
            yield fields.required("spec.group")
        elif problems := names.subdomain_problems(group):
            yield fields.invalid_value("spec.group", group, ",".join(problems))
        elif "." not in group:
            why = "should be a domain with at least one dot"
            yield fields.invalid_value("spec.group", group, why)
        if not spec.get("scope"):
            yield fields.required("spec.scope")
        elif spec["scope"] not in SCOPES:
            yield fields.not_supported("spec.scope", spec["scope"], SCOPES)
        yield from version_errors(NO_VERSIONS if spec.get("versions") is None else spec["versions"])
        yield from _names_errors(given)
        yield from shared_errors(spec.get("versions") or ())
        strategy = (spec.get("conversion") or {}).get("strategy") or ""
        if spec.get("preserveUnknownFields") and strategy != "None":
            why = "must be None if spec.preserveUnknownFields is true"
            yield fields.invalid_value("spec.conversion.strategy", strategy, why)
        yield from _conversion_errors(spec.get("conversion") or {}, "spec.conversion")

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a changed definition."""
        return [*self.spec_errors(new), *change_errors(new, old)]


def change_errors(new: JsonDict, old: JsonDict) -> Iterator[FieldError]:
    """Yield the errors of the change: group, scope and names of the kind stay."""
    before, after = old["spec"], new["spec"]
    for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
        had, has = _at(before, path), _at(after, path)
        if had != has:
            yield fields.invalid_value(".".join(("spec", *path)), has, "field is immutable")
    known = {version.get("name") for version in after.get("versions") or ()}
    for index, name in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield fields.invalid_value(f"status.storedVersions[{index}]", name, why)
    if APPROVAL not in (old["metadata"].get("annotations") or {}):
        if APPROVAL in (new["metadata"].get("annotations") or {}):
            yield from _approval_errors(new["metadata"], after)
    elif _approval(new["metadata"]) != _approval(old["metadata"]):
        yield from _approval_errors(new["metadata"], after)
    yield from _unknown_fields_errors(after, before)


def _stored_errors(spec: JsonObject) -> Iterator[FieldError]:
    """Yield that no version of a new definition is stored."""
    if not any(version.get("storage") for version in spec.get("versions") or ()):
        why = "must have at least one stored version"
        yield fields.invalid_value("status.storedVersions", None, why)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _approval(meta: JsonObject) -> str:
    """Return how the use of a group of the community is approved: no, bypassed, url, or bad."""
    text = (meta.get("annotations") or {}).get(APPROVAL) or ""
    if not text:
        return "no"
    if text.startswith("unapproved"):
        return "bypassed"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "bad"
    return "url" if parts.scheme and parts.netloc else "bad"


def _approval_errors(meta: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    if not f".{spec.get('group') or ''}".endswith(PROTECTED):
        return
    path, approval = f"metadata.annotations[{APPROVAL}]", _approval(meta)
    begin = f'protected groups must have approval annotation "{APPROVAL}"'
    if approval == "no":
        yield fields.required(path, f"{begin}, see {APPROVAL_RULES}")
    elif approval == "bad":
        why = f'{begin} with either a URL or a reason starting with "unapproved"'
        text = (meta.get("annotations") or {}).get(APPROVAL)
        yield fields.invalid_value(path, text, f"{why}, see {APPROVAL_RULES}")


def _unknown_fields_errors(spec: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    if spec.get("preserveUnknownFields") and not before.get("preserveUnknownFields"):
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        yield fields.invalid_value("spec.preserveUnknownFields", True, why)  # noqa: FBT003


def _names_errors(given: JsonDict) -> Iterator[FieldError]:
    parts = ("plural", "singular", "kind", "listKind")
    yield from (fields.required(f"spec.names.{part}") for part in parts if not given.get(part))
    for part in parts:
        name, mixed = given.get(part) or "", part in {"kind", "listKind"}
        problems = names.label_1035_problems(name.lower() if mixed else name)
        if name and problems:
            begin = "may have mixed case, but should otherwise match: " if mixed else ""
            yield fields.invalid_value(f"spec.names.{part}", name, begin + ",".join(problems))
    yield from _each_name_errors(given, "shortNames")
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        why = "kind and listKind may not be the same"
        yield fields.invalid_value("spec.names.listKind", given["listKind"], why)
    yield from _each_name_errors(given, "categories")


def _each_name_errors(given: JsonDict, part: str) -> Iterator[FieldError]:
    for index, name in enumerate(given.get(part) or ()):
        if problems := names.label_1035_problems(name):
            yield fields.invalid_value(f"spec.names.{part}[{index}]", name, ",".join(problems))


def _conversion_errors(conversion: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the errors of how versions are converted; the paths are upstream's own."""
    strategy, webhook = conversion.get("strategy") or "", conversion.get("webhook")
    if not strategy:
        yield fields.required(f"{path}.strategy")
    elif strategy not in STRATEGIES:
        yield fields.not_supported(f"{path}.strategy", strategy, STRATEGIES)
    client = (webhook or {}).get("clientConfig")
    reviews = (webhook or {}).get("conversionReviewVersions") or ()
    at, versions_at = f"{path}.webhookClientConfig", f"{path}.conversionReviewVersions"
    if strategy == "Webhook":
        if client is None:
            yield fields.required(at, "required when strategy is set to Webhook")
        elif (client.get("url") is None) == (client.get("service") is None):
            yield fields.required(at, "exactly one of url or service is required")
        else:
            yield from webhook_client_errors(client, at)
        yield from review_version_errors(reviews, versions_at, none="")
        return
    why = "should not be set when strategy is not set to Webhook"
    if client is not None:
        yield fields.forbidden(at, why)
    if reviews:
        yield fields.forbidden(versions_at, why)

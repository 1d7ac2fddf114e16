"""What configured plugins need of a server: versions of objects, and authorization."""

from collections.abc import Iterator, Mapping
from typing import Any

from dralab.api.kinds import Kind, Kinds
from dralab.api.scalar_decoding import DecodingError
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.admission.forms import MergeError, internal_error
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.access.users import service_account
from dralab.apiserver.managed_fields import typed
from dralab.apiserver.managed_fields.forms import Form
from dralab.apiserver.verbs.state import typed_objects
from dralab.apiserver.verbs.state.context import Context
from dralab.apiserver.verbs.state.ownership import schema_of
from dralab.apiserver.verbs.state.selectors import exact_fields
from dralab.cel.functions.authorizer import AccessCheck, AccessDecision, Decide
from dralab.values.json_types import JsonDict


class AdmissionForms:
    """The `Forms` of a server."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def kinds(self) -> Kinds:
        """The kinds that are served."""
        return self.context.kinds

    def shown(self, kind: Kind, value: Mapping[str, Any], scope: RequestScope) -> JsonDict:
        """Return an object in the version of a kind, with its type; its parts are shared."""
        found = self.context.rules.from_hub(kind, dict(value), scope)
        rest = {part: item for part, item in found.items() if part not in {"kind", "apiVersion"}}
        return {"kind": kind.kind, "apiVersion": kind.api_version, **rest}

    def taken(self, kind: Kind, value: JsonDict, scope: RequestScope) -> JsonDict:
        """Return an object that came in a version: decoded, defaulted, as it is stored. ApiError.

        Fields that its kind does not know are dropped, as a real server drops them here.
        """
        rules = self.context.rules
        self._check_type(kind, value)
        value["kind"], value["apiVersion"] = kind.kind, kind.api_version
        try:
            value, _ = typed_objects.typed(self.context.scope(), kind, value)
        except DecodingError as error:
            raise internal_error(str(error)) from error
        rules.default(kind, value)
        return rules.to_hub(kind, value, scope)

    def _check_type(self, kind: Kind, value: JsonDict) -> None:
        """Refuse an object that a plugin gave another type. ApiError."""
        version, name = value.get("apiVersion"), value.get("kind")
        if kind.custom is not None or (version, name) == (kind.api_version, kind.kind):
            return
        other = self.context.kinds.of_object(str(version), str(name))
        if other is None:
            raise internal_error(
                f'no kind "{name}" is registered for version "{version}" in scheme '
                '"pkg/runtime/scheme.go:111"'
            )
        if other.hub != kind.hub:
            package = (kind.group or "core").partition(".")[0]
            raise ApiError.failed(
                f"converting ({other.version}.{other.kind}) to ({package}.{kind.kind}): "
                "unknown conversion"
            )

    def merged(self, kind: Kind, obj: JsonDict, config: JsonDict) -> JsonDict:
        """Return an object merged with an apply configuration. MergeError.

        Atomic parts may not be set: what the configuration leaves out of them would be lost.
        Source: k8s.io/apiserver `admission/plugin/policy/mutating/patch/smd.go`.
        """
        form = Form.from_schema(schema_of(self.context.rules, kind))
        if wrong := list(typed.misfits(config, form)):
            raise MergeError(
                "error applying patch: failed to convert patch object to typed object: "
                + "; ".join(wrong)
            )
        if atomic := list(_atomic(config, form, "")):
            raise MergeError(
                "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, "
                f"maps or structs: {', '.join(atomic)}"
            )
        found: JsonDict = typed.merged(obj, config, form)
        return found

    def new_uid(self) -> str:
        """Return the uid of a review."""
        return self.context.randomness.uuid("admission")

    def decide(self, review: Review) -> Decide:
        """Return the authorizer for the user of a write."""

        def decided(asked: AccessCheck) -> AccessDecision:
            authorizer = self.context.authorizer
            user = review.user if asked.account is None else service_account(*asked.account)
            if authorizer is None or user.is_superuser:
                return AccessDecision(allowed=True)
            found = authorizer.authorize(
                Attributes(
                    user=user,
                    verb=asked.verb,
                    group=asked.group,
                    version="*" if not asked.path else "",
                    resource=asked.resource,
                    subresource=asked.subresource,
                    namespace=asked.namespace,
                    name=asked.name,
                    path=asked.path,
                    fields=exact_fields(asked.field_selector) if asked.field_selector else (),
                )
            )
            return AccessDecision(found.allowed, found.reason, found.error)

        return decided


def _atomic(value: Any, form: Form, path: str) -> Iterator[str]:
    """Yield the paths of lists, maps and structs that are replaced as a whole."""
    kind = form.seen(value)
    if kind == "atomic" and isinstance(value, (dict, list)):
        yield path or "."
    elif kind == "fields" and isinstance(value, dict):
        for name, item in value.items():
            yield from _atomic(item, form.below(name), f"{path}.{name}")
    elif isinstance(value, list) and kind in {"map", "set"}:
        for index, item in enumerate(value):
            yield from _atomic(item, form.element, f"{path}[{index}]")

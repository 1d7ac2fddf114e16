"""The verbs as one object: what in-process clients and the HTTP edge call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dralab.api.extended import Check, ExtendedStrategy, Fields, Mend
from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs import creating, deleting
from dralab.apiserver.verbs.crds import CustomResources
from dralab.apiserver.verbs.state.context import Context, Scope
from dralab.apiserver.verbs.state.options import PLAINLY, DeleteOptions
from dralab.values.json_types import JsonDict


class Resources:
    """Every verb of every kind, synchronous, on mappings; refusals are `ApiError`.

    Results are `Stored`: their `value` and `encoded` are in the form in which the
    collection is stored; `view` gives the form of the requested version. Nothing that
    is returned may be changed; what is passed in belongs to the server from then on.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.custom_resources = CustomResources(context)
        context.derive(self.custom_resources.load, {})

    @property
    def kinds(self) -> Kinds:
        """The kinds that are served."""
        return self.context.kinds

    def kind(self, group: str, version: str, plural: str) -> Kind:
        """Return a served kind; ApiError in the words of a server where there is none."""
        found = self.context.kinds.get(group, version, plural)
        if found is None:
            raise ApiError(
                "NotFound", "the server could not find the requested resource", details={}
            )
        return found

    def create(
        self, kind: Kind, value: JsonDict, namespace: str = "", scope: Scope | None = None
    ) -> Stored:
        """Store a new object."""
        return creating.create(scope or self.context.scope(), kind, value, namespace)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        options: DeleteOptions = PLAINLY,
        scope: Scope | None = None,
    ) -> tuple[Stored, bool]:
        """Delete an object or mark it; also return whether it is gone."""
        done = deleting.delete(scope or self.context.scope(), kind, name, namespace, options)
        self.custom_resources.finish()
        return done

    def extend(
        self, kind: Kind, fields: Fields, *, mend: Mend | None = None, check: Check | None = None
    ) -> None:
        """Add fields to a built-in kind: paths and structural schemas.

        `mend` changes objects before they are decoded, and returns what clients are warned of;
        `check` finds what is wrong with the added fields beyond their schemas.
        `resources.extend(pods, {("spec", "deviceClaims"): {...}})`
        """
        rules = self.context.rules
        rules.strategies[kind.hub] = ExtendedStrategy(
            rules.strategy_of(kind), kind, fields, mend=mend, check=check
        )
        self.context.kinds.add(replace(kind, added={**kind.added, **fields}))

    def on_kinds_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever kinds are added or removed."""
        self.context.on_kinds_changed.append(listener)


def success(kind: Kind, stored: Stored) -> Mapping[str, Any]:
    """Return the Status of a completed deletion."""
    details = {"name": stored.key.name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    if uid := stored.value["metadata"].get("uid"):  # none is known of an object that was damaged
        details["uid"] = uid
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }

"""Custom resources: registers, serves and cleans up kinds with their definitions.

It is notified of each written CustomResourceDefinition and updates the registry of kinds.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from dralab.api.core.definitions import FINALIZER, HUB
from dralab.api.kinds import ALL_VERBS, Kind, kind_of
from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.storage import Damaged, Key
from dralab.apiserver.verbs import deleting, writing
from dralab.apiserver.verbs.kinds.custom_rules import CustomStrategy
from dralab.apiserver.verbs.state.context import Context
from dralab.apiserver.verbs.state.options import PLAINLY
from dralab.objects.metadata import is_deleting, status_of
from dralab.values.api_versions import preference
from dralab.values.go_text import aggregate
from dralab.values.json_types import JsonDict

STATUS_VERBS: Final = ("get", "patch", "update")
SERVER: Final = "kube-apiserver"
STEP: Final = 250  # objects that are deleted while others wait


class CustomResources:
    """Serves the kinds of definitions."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._served: dict[str, list[Kind]] = {}
        self._busy: set[str] = set()
        self._watched: set[str] = set()
        self._leaving: dict[str, tuple[Kind, list[Key]]] = {}
        self._own: dict[str, Mapping[str, Any]] = {}
        context.rules.observe(HUB, self.definition_changed, writes=True)

    def load(self) -> None:
        """Serve the stored definitions and the server's own, and no others."""
        there = {stored.key.name: stored.value for stored in self.context.store.list(HUB).items}
        for name in [name for name in self._served if name not in there | self._own]:
            self._forget(name)
        for name, definition in there.items():
            if _is_established(definition):
                spec = definition["spec"]
                if len(status_of(definition).get("storedVersions") or ()) > 1:
                    self.context.rules.mixed.add(f"{spec['group']}/{spec['names']['plural']}")
                self.serve(name, spec)
                if definition["metadata"].get("generation") != 1:
                    self._outdate(f"{spec['group']}/{spec['names']['plural']}")

    def serve_own(self, name: str, spec: Mapping[str, Any]) -> None:
        """Serve the kinds of a definition that belongs to the server and is not stored."""
        self._own[name] = spec
        self.serve(name, spec)

    @guarded_by("context.store.lock")
    def definition_changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Update the served kinds after a definition was written."""
        if after is None:
            if before is not None:
                self._forget(before["metadata"]["name"])
                self._accept_others(before["spec"]["group"])
            return
        name = after["metadata"]["name"]
        if name in self._busy:
            return
        self._busy.add(name)
        try:
            if is_deleting(after):
                self._clean_up(after)
            elif before is None or before.get("spec") != after.get("spec"):
                self._establish(after)
        finally:
            self._busy.discard(name)

    # --- serving --------------------------------------------------------------------------

    def _establish(self, definition: JsonDict) -> None:
        """Accept the names of a definition, or report the conflict, and serve its kinds."""
        spec, now = definition["spec"], self.context.now()
        conflicts = self._conflicts(definition)
        # The last of them is told of.
        conflict = list(conflicts.values())[-1] if conflicts else None
        conditions = [
            {
                "type": "NamesAccepted",
                "status": "False" if conflict else "True",
                "lastTransitionTime": now,
                "reason": conflict[0] if conflict else "NoConflicts",
                "message": conflict[1] if conflict else "no conflicts found",
            },
            {
                "type": "Established",
                "status": "False" if conflict else "True",
                "lastTransitionTime": now,
                "reason": "NotAccepted" if conflict else "InitialNamesAccepted",
                "message": "not all names are accepted"
                if conflict
                else "the initial names have been accepted",
            },
        ]

        def edit(value: JsonDict) -> JsonDict:
            status = value.setdefault("status", {})
            before = {each["type"]: each for each in status.get("conditions") or ()}
            for condition in conditions:
                last = before.get(condition["type"])
                if last is not None and last["status"] == condition["status"]:
                    condition["lastTransitionTime"] = last["lastTransitionTime"]
            status["conditions"] = conditions
            accepted = {part: item for part, item in spec["names"].items() if item}
            had = status.get("acceptedNames") or {}
            status["acceptedNames"] = {
                part: had.get(part, "") if part in conflicts else item
                for part, item in accepted.items()
                if part not in conflicts or had.get(part) or part in {"plural", "kind"}
            }
            stored = status.get("storedVersions") or []
            status["storedVersions"] = [
                *stored,
                *(
                    version["name"]
                    for version in spec["versions"]
                    if version.get("storage") and version["name"] not in stored
                ),
            ]
            return value

        kind = self.context.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        name = definition["metadata"]["name"]
        writing.change(self.context.own_write(SERVER), kind, name, "", edit, subresource="status")
        if not conflict:
            self.serve(name, spec)

    def _conflicts(self, definition: JsonDict) -> dict[str, tuple[str, str]]:
        """Return the names that another kind of the group has already, as reasons and messages.

        Source: k8s.io/apiextensions-apiserver `pkg/controller/status/naming_controller.go`.
        """
        spec = definition["spec"]
        given, group = spec["names"], spec["group"]
        mine = self._served.get(definition["metadata"]["name"], [])
        others = [kind for kind in self.context.kinds if kind.group == group and kind not in mine]
        resources = {
            name for kind in others for name in (kind.plural, kind.singular, *kind.short_names)
        }
        kinds = {name for kind in others for name in (kind.kind, kind.list_kind)}
        found: dict[str, tuple[str, str]] = {}
        for part, taken in (
            ("plural", resources),
            ("singular", resources),
            ("shortNames", resources),
            ("kind", kinds),
            ("listKind", kinds),
        ):
            wanted = given.get(part) or ()
            names = wanted if isinstance(wanted, list) else [wanted] if wanted else []
            if used := [f'"{name}" is already in use' for name in names if name in taken]:
                found[part] = (f"{part[0].upper()}{part[1:]}Conflict", aggregate(used))
        return found

    def _accept_others(self, group: str) -> None:
        """Accept the names of definitions that waited for those of a deleted one."""
        for stored in self.context.store.list(HUB).items:
            waiting = stored.value
            if waiting["spec"].get("group") != group or is_deleting(waiting):
                continue
            if stored.key.name not in self._busy and not _is_established(waiting):
                self._busy.add(stored.key.name)
                try:
                    self._establish(waiting)
                finally:
                    self._busy.discard(stored.key.name)

    def serve(self, name: str, spec: Mapping[str, Any]) -> None:
        """Serve the kinds of a definition; `spec` as in a CustomResourceDefinition."""
        context = self.context
        hub = f"{spec['group']}/{spec['names']['plural']}"
        before = {(kind.version, kind.plural) for kind in self._served.get(name, ())}
        kinds = [
            _kind(spec, version) for version in _in_order(spec["versions"]) if version.get("served")
        ]
        storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
        by_webhook = (spec.get("conversion") or {}).get("strategy") == "Webhook"
        if by_webhook:
            storage = self._kept_version(hub, spec) or storage
        rules = CustomStrategy({version["name"]: version for version in spec["versions"]})
        known = context.rules.strategies.get(hub)
        context.rules.strategies[hub] = rules
        if isinstance(known, CustomStrategy) and not rules.reads_like(known):
            self._outdate(hub)
        api_version = f"{spec['group']}/{storage}"
        had = context.rules.hub_types.get(hub)
        context.rules.hub_types[hub] = (api_version, spec["names"]["kind"])
        self._convert(hub, spec, api_version, by_webhook=by_webhook)
        for version, plural in before - {(kind.version, kind.plural) for kind in kinds}:
            context.kinds.remove(spec["group"], version, plural)
        for kind in kinds:
            context.kinds.add(kind)
        self._served[name] = kinds
        if had is not None and had[0] != api_version:
            self._migrate(hub, api_version)
        if name not in self._watched:
            self._watched.add(name)
            context.rules.observe(
                hub, lambda _, after: self._object_changed(name, after), writes=True
            )
        self._tell()

    def _outdate(self, hub: str) -> None:
        """Note that objects may have been stored with an older schema."""
        if self.context.store.count(hub):
            self.context.rules.outdated.add(hub)

    def _kept_version(self, hub: str, spec: Mapping[str, Any]) -> str | None:
        """Return the version in which objects are stored, which only a webhook could change."""
        for stored in self.context.store.list(hub, limit=1).items:
            found = str(stored.value.get("apiVersion")).rpartition("/")[2]
            if any(version["name"] == found for version in spec["versions"]):
                return found
        return None

    def _convert(
        self, hub: str, spec: Mapping[str, Any], api_version: str, *, by_webhook: bool
    ) -> None:
        """Convert the objects of a definition by its webhook, if it has one."""
        rules = self.context.rules
        if not by_webhook:
            rules.webhooks.pop(hub, None)
        else:
            from dralab.apiserver.verbs.kinds.conversion_webhooks import ConversionWebhook

            rules.webhooks[hub] = ConversionWebhook(
                spec, api_version, self.context.outgoing, self.context.randomness
            )

    def _migrate(self, hub: str, api_version: str) -> None:
        """Note objects stored in another version: they keep it until they are written again."""
        for stored in self.context.store.list(hub, limit=1).items:
            if stored.value.get("apiVersion") != api_version:
                self.context.rules.mixed.add(hub)

    def _tell(self) -> None:
        for listener in self.context.on_kinds_changed:
            listener()

    # --- deleting -------------------------------------------------------------------------

    def _clean_up(self, definition: JsonDict) -> None:
        """Delete the objects of a definition, then remove its finalizer."""
        spec, meta = definition["spec"], definition["metadata"]
        if FINALIZER not in (meta.get("finalizers") or ()):
            return
        hub = f"{spec['group']}/{spec['names']['plural']}"
        store = self.context.store
        kinds = self._served.get(meta["name"], [])
        rules = self.context.rules.strategies.get(hub)
        if isinstance(rules, CustomStrategy):
            rules.ending = True
        found = [each.key for each in store.list(hub).items if not is_deleting(each.value)]
        if kinds and len(found) <= STEP:
            self._delete(kinds[0], found)
        elif kinds:
            self._leaving[meta["name"]] = (kinds[0], found)
            return
        if store.count(hub):
            self._note_progress(meta["name"])
        else:
            self._release(meta["name"])

    def _note_progress(self, name: str) -> None:
        """Say in the status of a definition that its objects are being deleted."""

        def edit(value: JsonDict) -> JsonDict:
            for condition in (value.get("status") or {}).get("conditions") or ():
                if condition.get("type") == "Terminating":
                    condition["reason"] = "InstanceDeletionInProgress"
                    condition["message"] = "CustomResource deletion is in progress"
            return value

        kind = self.context.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        writing.change(self.context.own_write(SERVER), kind, name, "", edit, subresource="status")

    def finish(self) -> None:
        """Delete the objects of deleted definitions, in steps: others write in between.

        For callers that have deleted a definition and do not hold the store's lock.
        """
        store = self.context.store
        while self._leaving:
            name, (kind, keys) = self._leaving.popitem()
            for start in range(0, len(keys), STEP):
                with store.lock, store.batch():
                    self._busy.add(name)
                    try:
                        self._delete(kind, keys[start : start + STEP])
                    finally:
                        self._busy.discard(name)
            with store.lock, store.batch():
                self._object_changed(name, None)

    def _delete(self, kind: Kind, keys: Sequence[Key]) -> None:
        for key in keys:
            with suppress(Damaged):
                if self.context.store.get(key) is not None:
                    scope = self.context.own_write(SERVER)
                    deleting.delete(scope, kind, key.name, key.namespace, PLAINLY)

    def _release(self, name: str) -> None:
        def edit(value: JsonDict) -> JsonDict:
            finalizers = value["metadata"].get("finalizers") or []
            value["metadata"]["finalizers"] = [each for each in finalizers if each != FINALIZER]
            return value

        kind = self.context.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        writing.change(self.context.own_write(SERVER), kind, name, "", edit)

    def _object_changed(self, name: str, after: JsonDict | None) -> None:
        """Remove a definition's finalizer once the last of its objects is gone."""
        if after is not None or name in self._busy:
            return
        try:
            found = self.context.store.get(Key(HUB, "", name))
        except Damaged:
            return
        if found is not None and is_deleting(found.value):
            self.definition_changed(found.value, found.value)

    def _forget(self, name: str) -> None:
        for kind in self._served.pop(name, ()):
            if self.context.kinds.get(kind.group, kind.version, kind.plural) is kind:
                self.context.kinds.remove(kind.group, kind.version, kind.plural)
            self.context.rules.mixed.discard(kind.hub)
            self.context.rules.outdated.discard(kind.hub)
            self.context.rules.strategies.pop(kind.hub, None)
            self.context.rules.hub_types.pop(kind.hub, None)
            self.context.rules.webhooks.pop(kind.hub, None)
        self._tell()


def _is_established(definition: JsonDict) -> bool:
    conditions = status_of(definition).get("conditions") or ()
    return any(
        each.get("type") == "Established" and each.get("status") == "True" for each in conditions
    )


def _in_order(versions: list[JsonDict]) -> list[JsonDict]:
    """Return versions as discovery prefers them: v2 before v1, v1 before v1beta1."""
    return sorted(versions, key=lambda version: preference(version["name"]))


def _kind(spec: Mapping[str, Any], version: Mapping[str, Any]) -> Kind:
    given, subresources = spec["names"], version.get("subresources") or {}
    subs: dict[str, Any] = {}
    if subresources.get("status") is not None:
        subs["status"] = {"kind": given["kind"], "verbs": STATUS_VERBS}
    if subresources.get("scale") is not None:
        subs["scale"] = {
            "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": STATUS_VERBS,
        }  # fmt: skip
    entry = {
        "group": spec["group"],
        "version": version["name"],
        "plural": given["plural"],
        "kind": given["kind"],
        "singular": given.get("singular"),
        "listKind": given.get("listKind"),
        "namespaced": spec["scope"] == "Namespaced",
        "verbs": ALL_VERBS,
        "shortNames": given.get("shortNames"),
        "categories": given.get("categories"),
        "subresources": subs,
        "fields": [
            each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()
        ],
        "generation": True,
        "deprecation": _deprecation(spec, version) if version.get("deprecated") else "",
    }
    return kind_of(entry, custom=version)


def _deprecation(spec: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return the warning of a deprecated version (apiextensions, `defaultDeprecationWarning`)."""
    if (given := version.get("deprecationWarning")) is not None:
        return str(given)
    group, kind = spec["group"], spec["names"]["kind"]
    newer = [
        each["name"]
        for each in _in_order(list(spec["versions"]))
        if each["served"]
        and not each.get("deprecated")
        and preference(each["name"]) < preference(version["name"])
    ]
    use = f"; use {group}/{newer[0]} {kind}" if newer else ""
    return f"{group}/{version['name']} {kind} is deprecated{use}"

"""The status of FlowSchemas: whether the priority level that one names exists.

Source: k8s.io/apiserver `pkg/util/flowcontrol` (apf_controller, presyncFlowSchemaStatus).
"""

from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.verbs import writing
from dralab.apiserver.verbs.state.context import Context, key_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import is_deleting, spec_of
from dralab.values.json_types import JsonDict, JsonObject

GROUP: Final = "flowcontrol.apiserver.k8s.io"
SCHEMAS: Final = "flowschemas"
LEVELS: Final = "prioritylevelconfigurations"
MANAGER: Final = "api-priority-and-fairness-config-consumer-v1"


class FlowSchemaStatuses:
    """Writes the condition Dangling into the FlowSchemas of one server."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def follow(self) -> None:
        """Write missing statuses, and update them after each change."""
        rules = self.context.rules
        rules.observe(f"{GROUP}/{SCHEMAS}", self._schema_changed, writes=True)
        rules.observe(f"{GROUP}/{LEVELS}", self._level_changed, writes=True)
        for stored in self.context.store.list(f"{GROUP}/{SCHEMAS}").items:
            self._check(stored.value)

    def _schema_changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        del before
        if after is not None and not is_deleting(after):
            self._check(after)

    def _level_changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        if before is not None and after is not None:
            return  # it was there and still is
        name = ((after or before or {}).get("metadata") or {}).get("name")
        for stored in self.context.store.list(f"{GROUP}/{SCHEMAS}").items:
            if _level_of(stored.value) == name:
                self._check(stored.value)

    def _check(self, schema: JsonObject) -> None:
        kind = self.context.kinds.get(GROUP, "v1", SCHEMAS)
        levels = self.context.kinds.get(GROUP, "v1", LEVELS)
        if kind is None or levels is None:
            return  # switched off
        level, name = _level_of(schema), str(schema["metadata"]["name"])
        wanted = _dangling(level, self.context.own.find(key_of(levels, "", level)))
        known = condition_of(schema, "Dangling") or {}
        if all(known.get(part) == item for part, item in wanted.items()):
            return
        scope = self.context.own_write(MANAGER)
        try:
            writing.set_condition(scope, kind, name, wanted)
        except ApiError as error:
            if error.reason not in {"Conflict", "NotFound"}:
                raise


def _level_of(schema: JsonObject) -> str:
    return str((spec_of(schema).get("priorityLevelConfiguration") or {}).get("name") or "")


def _dangling(level: str, found: object) -> JsonDict:
    """Return the condition of a schema that names a level, without its time."""
    names = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if found is None:
        message = f"{names} but there is no such object"
        return {"type": "Dangling", "status": "True", "reason": "NotFound", "message": message}
    message = f"{names} and it exists"
    return {"type": "Dangling", "status": "False", "reason": "Found", "message": message}

"""Translates each FakeClaimParameters into an in-tree ResourceClaimParameters.

Source: fake-dra-driver v0.1.3, the structured variant. Its defect for an empty selector (`()`,
which is not an expression) is fixed: all devices match.
"""

import json
from typing import Any, Final

from dralab.api.status import ignoring
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, spec_of, uid_of
from dralab.prototypes.classic.fake import DriverError, checked
from dralab.prototypes.classic.kinds import API_VERSION, DRIVER, DRIVER_VERSION
from dralab.runtime.client import amend
from dralab.runtime.events import EventRecorder
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIM_PARAMETERS, FAKE_PARAMETERS
from dralab.values.json_types import JsonDict, JsonObject

KIND: Final = "FakeClaimParameters"
OWN_VERSION: Final = f"{DRIVER}/{DRIVER_VERSION}"


class ParametersTranslation:
    """Keeps ResourceClaimParameters in sync with their FakeClaimParameters."""

    def __init__(self, manager: Manager, recorder: EventRecorder) -> None:
        self.client = manager.client
        self.recorder = recorder
        self.originals = manager.cache(FAKE_PARAMETERS)
        self.made = manager.cache(CLAIM_PARAMETERS)
        self.queue = manager.queue("fake-driver/parameters", self.sync)
        self.originals.subscribe(self._original)
        self.made.subscribe(self._made)

    def _original(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _made(self, old: JsonDict | None, new: JsonDict | None) -> None:
        # Also one that another client changed or deleted: it is put right.
        for obj in (old, new):
            if obj is not None and _is_from_fakes(obj):
                self.queue.add(NamespacedName(key_of(obj).namespace, obj["generatedFrom"]["name"]))

    def sync(self, key: NamespacedName) -> int | None:
        """Write an object's translation; the garbage collector deletes those of deleted objects.

        What asks for nothing that there is leaves an event, and its earlier meaning as it is.
        """
        original = self.originals.get(key)
        if original is None or is_deleting(original):
            return None
        where = f'FakeClaim called "{key.name}" in namespace "{key.namespace}"'
        try:
            content = _content(original, checked(original, where).count)
        except DriverError as error:
            self.recorder.event(
                original, KIND, "Failed", str(error), type="Warning", api_version=OWN_VERSION
            )
            return None
        earlier = self._earlier(key)
        if earlier:
            made = amend(self.client, CLAIM_PARAMETERS, earlier[0], lambda obj: _put(obj, content))
        else:
            made = self.client.create(CLAIM_PARAMETERS, _body(original, content), key.namespace)
        self.made.learn(made)
        for surplus in earlier[1:]:
            self._delete(surplus)
        return None

    def _earlier(self, key: NamespacedName) -> list[JsonDict]:
        """Return earlier translations: several if two controllers were active for a moment."""
        return [
            obj
            for obj in self.made.namespace(key.namespace)
            if _is_from_fakes(obj)
            and obj["generatedFrom"]["name"] == key.name
            and not is_deleting(obj)
        ]

    def _delete(self, obj: JsonDict) -> None:
        with ignoring("NotFound"):
            self.client.delete(CLAIM_PARAMETERS, key_of(obj).name, key_of(obj).namespace)


def selector_of(spec: JsonObject) -> str:
    """Return the CEL selector for a claim's devices.

    >>> selector_of({"selector": {"model": "ULTRA_10"}})
    'attributes.string["model"] == "ULTRA_10"'
    """
    model = (spec.get("selector") or {}).get("model")
    return f'attributes.string["model"] == {json.dumps(model)}' if model else "true"


def _content(original: JsonDict, count: int) -> dict[str, Any]:
    spec = spec_of(original)
    request = {"namedResources": {"selector": selector_of(spec)}}
    return {
        "generatedFrom": {"apiGroup": DRIVER, "kind": KIND, "name": original["metadata"]["name"]},
        "shareable": True,
        "driverRequests": [
            {"driverName": DRIVER, "vendorParameters": spec, "requests": [request] * count}
        ],
    }


def _body(original: JsonDict, content: dict[str, Any]) -> JsonDict:
    owner = {
        "apiVersion": OWN_VERSION,
        "kind": KIND,
        "name": original["metadata"]["name"],
        "uid": uid_of(original),
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimParameters",
        "metadata": {
            "generateName": "resource-claim-parameters-",
            "namespace": key_of(original).namespace,
            "ownerReferences": [owner],
        },
        **content,
    }


def _put(obj: JsonDict, content: dict[str, Any]) -> bool:
    changed = any(obj.get(name) != value for name, value in content.items())
    obj.update(content)
    return changed


def _is_from_fakes(obj: JsonDict) -> bool:
    source = obj.get("generatedFrom") or {}
    return (source.get("apiGroup"), source.get("kind")) == (DRIVER, KIND)

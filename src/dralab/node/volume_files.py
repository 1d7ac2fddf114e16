"""The files of a volume: of config maps and secrets, of the pod itself, and tokens.

Which directory they are in is left to the runtime; they are as they were when the container began.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.node.container_environment import ConfigError, field_of, resource_of
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from dralab.values.json_types import JsonDict, JsonObject


def files_of(client: Client, pod: JsonDict, name: str) -> dict[str, bytes]:
    """Return the content of the files of one of a pod's volumes, by their path.

    Volumes of other kinds have none. ConfigError names what is missing.
    """
    found: dict[str, bytes] = {}
    for volume in pod["spec"].get("volumes") or ():
        if volume["name"] == name:
            for kind, source in _sources(volume):
                found.update(_MADE[kind](client, pod, source))
    return found


def _sources(volume: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    projected = volume.get("projected")
    each: Sequence[Mapping[str, Any]] = [volume]
    if projected is not None:
        each = projected.get("sources") or ()
    for source in each:
        for kind in _MADE:
            if source.get(kind) is not None:
                yield kind, source[kind]


def _config_map(client: Client, pod: JsonDict, source: JsonObject) -> dict[str, bytes]:
    obj = _object(client, CONFIG_MAPS, pod, source.get("name") or "", source)
    data = {name: text.encode() for name, text in (obj.get("data") or {}).items()}
    binary = {name: base64.b64decode(text) for name, text in (obj.get("binaryData") or {}).items()}
    return _chosen(data | binary, source, obj)


def _secret(client: Client, pod: JsonDict, source: JsonObject) -> dict[str, bytes]:
    name = source.get("secretName") or source.get("name") or ""
    obj = _object(client, SECRETS, pod, name, source)
    data = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
    return _chosen(data, source, obj)


def _downward(client: Client, pod: JsonDict, source: JsonObject) -> dict[str, bytes]:
    found = {}
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            text = field_of(pod, item["fieldRef"]["fieldPath"])
        else:
            ref = item["resourceFieldRef"]
            text = resource_of(client, pod, _container(pod, ref["containerName"]), ref)
        found[item["path"]] = text.encode()
    return found


def _container(pod: JsonDict, name: str) -> JsonObject:
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["name"] == name:
            found: JsonObject = each
            return found
    raise ConfigError(f"container {name} not found")


def _token(client: Client, pod: JsonDict, source: JsonObject) -> dict[str, bytes]:
    metadata = pod["metadata"]
    request: JsonDict = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [source["audience"]] if source.get("audience") else [],
            "expirationSeconds": source.get("expirationSeconds") or 3600,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }
    account = pod["spec"].get("serviceAccountName") or "default"
    namespace = metadata.get("namespace", "")
    try:
        answer = client.post(SERVICE_ACCOUNTS, account, "token", request, namespace)
    except ApiError as error:
        raise ConfigError(f"cannot get a token of {namespace}/{account}: {error}") from error
    return {source["path"]: answer["status"]["token"].encode()}


_MADE: Final[Mapping[str, Callable[[Client, JsonDict, JsonObject], dict[str, bytes]]]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
}


def _object(
    client: Client, resource: Resource, pod: JsonDict, name: str, source: JsonObject
) -> JsonObject:
    namespace = pod["metadata"].get("namespace", "")
    try:
        return client.get(resource, name, namespace)
    except ApiError as error:
        if error.reason == "NotFound" and source.get("optional"):
            return {}
        raise ConfigError(f"{resource.plural} {namespace}/{name}: {error}") from error


def _chosen(data: Mapping[str, bytes], source: JsonObject, obj: JsonObject) -> dict[str, bytes]:
    """Return the files of the keys that a volume lists, or of all."""
    items = source.get("items")
    if not items:
        return dict(data)
    found = {}
    for item in items:
        if item["key"] in data:
            found[item["path"]] = data[item["key"]]
        elif obj and not source.get("optional"):
            raise ConfigError(f"references non-existent config key: {item['key']}")
    return found

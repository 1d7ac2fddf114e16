"""The files of a volume: of config maps and secrets, of the pod itself, and tokens.

Which directory they are in is left to the runtime. Modes and owners are those of kubelet 1.36
(`pkg/volume/configmap`, `secret`, `downwardapi`, `projected`).
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, Clock
from dralab.node.container_environment import ConfigError, field_of, resource_of
from dralab.node.containers import VolumeFile
from dralab.node.privileges import file_owner, fs_group
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from dralab.values.json_types import JsonDict, JsonObject

DEFAULT_MODE: Final = 0o644
SHORTEST: Final = 3600  # seconds that a token lasts where its volume does not say


def files_of(
    client: Client, pod: JsonDict, name: str, tokens: "TokenCache | None" = None
) -> dict[str, VolumeFile]:
    """Return the files of one of a pod's volumes, by their path.

    Volumes of other kinds have none. ConfigError names what is missing. `tokens` keeps the pod's.
    """
    found: dict[str, VolumeFile] = {}
    for volume in pod["spec"].get("volumes") or ():
        if volume["name"] == name:
            for kind, source in _sources(volume):
                mode = (volume.get("projected") or source).get("defaultMode")
                default = VolumeFile(b"", DEFAULT_MODE if mode is None else mode)
                kept = tokens.of(source) if tokens and kind == "serviceAccountToken" else None
                made = kept or _MADE[kind](client, pod, source, default)
                found.update(made)
                if tokens and not kept and kind == "serviceAccountToken":
                    tokens.keep(source, made)
    return found


class TokenCache:
    """The tokens of one pod: each is renewed after four fifths of its lifetime.

    Source: kubelet 1.36, `pkg/kubelet/token`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[int, dict[str, VolumeFile]]] = {}

    def of(self, source: JsonObject) -> dict[str, VolumeFile] | None:
        """Return the token of a volume's source while it is good."""
        until, files = self._kept.get(_key(source), (0, None))
        return files if self._clock.now() < until else None

    def keep(self, source: JsonObject, files: dict[str, VolumeFile]) -> None:
        """Keep a token that was issued now."""
        lasts = source.get("expirationSeconds") or SHORTEST
        self._kept[_key(source)] = self._clock.now() + lasts * SECOND * 4 // 5, files


def _key(source: JsonObject) -> tuple[str, str]:
    return source["path"], source.get("audience") or ""


def changing(pod: JsonDict) -> list[str]:
    """Return the names of the volumes whose files follow their sources."""
    volumes = pod["spec"].get("volumes") or ()
    return [volume["name"] for volume in volumes if any(True for _ in _sources(volume))]


def _sources(volume: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    projected = volume.get("projected")
    each: Sequence[Mapping[str, Any]] = [volume]
    if projected is not None:
        each = projected.get("sources") or ()
    for source in each:
        for kind in _MADE:
            if source.get(kind) is not None:
                yield kind, source[kind]


def _config_map(
    client: Client, pod: JsonDict, source: JsonObject, default: VolumeFile
) -> dict[str, VolumeFile]:
    obj = _object(client, CONFIG_MAPS, pod, source.get("name") or "", source)
    data = {name: text.encode() for name, text in (obj.get("data") or {}).items()}
    binary = {name: base64.b64decode(text) for name, text in (obj.get("binaryData") or {}).items()}
    return _chosen(data | binary, source, obj, default)


def _secret(
    client: Client, pod: JsonDict, source: JsonObject, default: VolumeFile
) -> dict[str, VolumeFile]:
    name = source.get("secretName") or source.get("name") or ""
    obj = _object(client, SECRETS, pod, name, source)
    data = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
    return _chosen(data, source, obj, default)


def _downward(
    client: Client, pod: JsonDict, source: JsonObject, default: VolumeFile
) -> dict[str, VolumeFile]:
    found = {}
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            text = field_of(pod, item["fieldRef"]["fieldPath"])
        else:
            ref = item["resourceFieldRef"]
            text = resource_of(client, pod, _container(pod, ref["containerName"]), ref)
        found[item["path"]] = _file(text.encode(), item, default)
    return found


def _container(pod: JsonDict, name: str) -> JsonObject:
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["name"] == name:
            found: JsonObject = each
            return found
    raise ConfigError(f"container {name} not found")


def _token(
    client: Client, pod: JsonDict, source: JsonObject, default: VolumeFile
) -> dict[str, VolumeFile]:
    metadata = pod["metadata"]
    request: JsonDict = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [source["audience"]] if source.get("audience") else [],
            "expirationSeconds": source.get("expirationSeconds") or SHORTEST,
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
    owner = file_owner(pod)
    mode = default.mode if owner is None and fs_group(pod) is None else 0o600
    return {source["path"]: VolumeFile(answer["status"]["token"].encode(), mode, owner)}


Maker = Callable[[Client, JsonDict, JsonObject, VolumeFile], dict[str, VolumeFile]]
_MADE: Final[Mapping[str, Maker]] = {
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


def _chosen(
    data: Mapping[str, bytes], source: JsonObject, obj: JsonObject, default: VolumeFile
) -> dict[str, VolumeFile]:
    """Return the files of the keys that a volume lists, or of all."""
    items = source.get("items")
    if not items:
        return {name: _file(content, {}, default) for name, content in data.items()}
    found = {}
    for item in items:
        if item["key"] in data:
            found[item["path"]] = _file(data[item["key"]], item, default)
        elif obj and not source.get("optional"):
            raise ConfigError(f"references non-existent config key: {item['key']}")
    return found


def _file(content: bytes, item: JsonObject, default: VolumeFile) -> VolumeFile:
    mode = item.get("mode")
    return VolumeFile(content, default.mode if mode is None else mode)

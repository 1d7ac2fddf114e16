"""A container's environment and command, without the edits of devices."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dralab.api.status import ApiError
from dralab.contracts.cdi_cache import ContainerConfig
from dralab.objects.metadata import status_of
from dralab.objects.nodes import offered
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import CONFIG_MAPS, NODES, SECRETS, VOLUME_CLAIMS, VOLUMES
from dralab.values import quantity
from dralab.values.json_types import JsonDict, JsonObject

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Kubernetes' own syntax: $(NAME), and $$ for a dollar.
FOLLOWING: Final = frozenset({"configMap", "secret", "downwardAPI", "projected"})
REFERENCE: Final = re.compile(r"\$(\$|\(([^()]*)\))")


class ConfigError(Exception):
    """A container's configuration names something that does not exist."""


def config_of(
    client: Client, pod: JsonDict, container: JsonObject, links: Mapping[str, str] | None = None
) -> ContainerConfig:
    """Return the configuration of a container; ConfigError names what is missing.

    `links` are variables that its own ones go before.
    """
    namespace = pod["metadata"].get("namespace", "")
    name = pod["spec"].get("hostname") or pod["metadata"]["name"]
    env = {"PATH": PATH, "HOSTNAME": name, **(links or {})}
    for source in container.get("envFrom") or ():
        env.update(_all_of(client, namespace, source))
    own: dict[str, str] = {}
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            # As it is: the dollars of a password are its own (kubelet: makeEnvironmentVariables).
            found = _value_from(client, pod, container, entry["valueFrom"])
            if found is not None:
                own[entry["name"]] = found
        else:
            own[entry["name"]] = expand(entry.get("value", ""), {**env, **own})
    paths = _host_paths(client, pod)
    given = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    mounts = [
        {
            "hostPath": paths.get(mount["name"], ""),
            "containerPath": mount["mountPath"],
            "volume": mount["name"],
            # kubelet: what follows other objects is never written to.
            "readOnly": mount.get("readOnly", False) or bool(FOLLOWING & set(given[mount["name"]])),
            "subPath": _sub_path(mount, {**env, **own}),
            "inMemory": (given[mount["name"]].get("emptyDir") or {}).get("medium") == "Memory",
            **_image_of(given[mount["name"]]),
        }
        for mount in container.get("volumeMounts") or ()
        if mount["name"] in given
    ]
    return ContainerConfig(env={**env, **own}, mounts=list(mounts))


def _image_of(volume: JsonObject) -> dict[str, str]:
    """Return the image of an image volume."""
    reference = (volume.get("image") or {}).get("reference")
    return {"image": reference} if reference else {}


def _sub_path(mount: JsonObject, env: Mapping[str, str]) -> str:
    """Return the subPath of a mount. ConfigError: it is not below the volume.

    The texts are those of kubelet 1.36 (`kubelet_pods.go`).
    """
    if not (wanted := mount.get("subPathExpr")):
        return str(mount.get("subPath", ""))
    names = [match[2] for match in REFERENCE.finditer(wanted) if match[1] != "$"]
    if missing := sorted({name for name in names if not env.get(name)}):
        raise ConfigError(f"missing value for {', '.join(missing)}")
    found = expand(wanted, env)
    if found.startswith("/"):
        raise ConfigError(f"error SubPath `{found}` must not be an absolute path")
    if ".." in found.split("/"):
        raise ConfigError(f"unable to provision SubPath `{found}`: must not contain '..'")
    return found


def _host_paths(client: Client, pod: JsonDict) -> dict[str, str]:
    """Return the directories of a pod's hostPath volumes."""
    found = {}
    for volume in pod["spec"].get("volumes") or ():
        source = volume
        if claimed := volume.get("persistentVolumeClaim"):
            source = _volume_of(client, pod, claimed["claimName"])
        elif volume.get("ephemeral"):
            source = _volume_of(client, pod, f"{pod['metadata']['name']}-{volume['name']}")
        place = source.get("hostPath") or source.get("local")
        if place:
            found[volume["name"]] = place["path"]
    return found


def _volume_of(client: Client, pod: JsonDict, claim: str) -> JsonObject:
    """Return the specification of the volume that is bound to a claim."""
    try:
        found = client.get(VOLUME_CLAIMS, claim, pod["metadata"].get("namespace", ""))
        name = found["spec"].get("volumeName")
        if not name:
            raise ConfigError(f'persistentvolumeclaim "{claim}" is not bound')
        spec: JsonObject = client.get(VOLUMES, name)["spec"]
    except ApiError as error:
        raise ConfigError(error.message) from error
    return spec


def argv_of(container: JsonObject, env: Mapping[str, str]) -> list[str]:
    """Return the command line, with `$(NAME)` expanded; empty if the image decides."""
    words: Sequence[str] = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(word, env) for word in words]


def args_of(container: JsonObject, env: Mapping[str, str]) -> list[str]:
    """Return the arguments for an image's own command."""
    return [expand(word, env) for word in container.get("args") or ()]


def expand(text: str, env: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` replaced; unknown names stay as they are.

    >>> expand("$(A) $$(A) $(B)", {"A": "1"})
    '1 $(A) $(B)'
    """

    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return env.get(match[2], match[0])

    return REFERENCE.sub(value, text)


def _all_of(client: Client, namespace: str, source: JsonObject) -> dict[str, str]:
    prefix = source.get("prefix", "")
    for key, resource in (("configMapRef", CONFIG_MAPS), ("secretRef", SECRETS)):
        ref = source.get(key)
        if ref is None:
            continue
        obj = _fetch(client, resource, ref, namespace)
        if obj is not None:
            return {f"{prefix}{name}": value for name, value in _data(obj).items()}
    return {}


def _value_from(
    client: Client, pod: JsonDict, container: JsonObject, source: JsonObject
) -> str | None:
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_of(client, pod, container, source["resourceFieldRef"])
    namespace = pod["metadata"].get("namespace", "")
    for kind, resource in (("ConfigMap", CONFIG_MAPS), ("Secret", SECRETS)):
        ref = source.get(f"{kind[0].lower()}{kind[1:]}KeyRef")
        if ref is None:
            continue
        obj = _fetch(client, resource, ref, namespace)
        found = _data(obj).get(ref["key"]) if obj is not None else None
        if found is None and not ref.get("optional"):
            where = f"{kind} {namespace}/{ref['name']}"
            raise ConfigError(f"couldn't find key {ref['key']} in {where}")
        return found
    return ""


def _fetch(client: Client, resource: Resource, ref: JsonObject, namespace: str) -> JsonDict | None:
    try:
        return client.get(resource, ref.get("name", ""), namespace)
    except ApiError as error:
        if ref.get("optional") and error.reason == "NotFound":
            return None
        raise ConfigError(error.message) from error


def _data(obj: JsonDict) -> dict[str, str]:
    import base64

    data = dict(obj.get("data") or {})
    if obj.get("kind") == "Secret" or "type" in obj:
        return {name: base64.b64decode(value).decode() for name, value in data.items()}
    return data


FIELDS: Final[Mapping[str, Callable[[JsonDict], str]]] = {
    "metadata.name": lambda pod: pod["metadata"]["name"],
    "metadata.namespace": lambda pod: pod["metadata"].get("namespace", ""),
    "metadata.uid": lambda pod: pod["metadata"].get("uid", ""),
    "spec.nodeName": lambda pod: pod["spec"].get("nodeName", ""),
    "spec.serviceAccountName": lambda pod: pod["spec"].get("serviceAccountName", ""),
    "status.podIP": lambda pod: status_of(pod).get("podIP", ""),
    "status.podIPs": lambda pod: _addresses(pod, "podIP"),
    "status.hostIP": lambda pod: status_of(pod).get("hostIP", ""),
    "status.hostIPs": lambda pod: _addresses(pod, "hostIP"),
    "metadata.labels": lambda pod: _lines(pod["metadata"].get("labels") or {}),
    "metadata.annotations": lambda pod: _lines(pod["metadata"].get("annotations") or {}),
}


def _addresses(pod: JsonDict, name: str) -> str:
    status = status_of(pod)
    listed = [each["ip"] for each in status.get(f"{name}s") or ()]
    return ",".join(listed) or str(status.get(name, ""))


def _lines(mapping: Mapping[str, str]) -> str:
    """Return labels or annotations as a file of the downward API has them (FormatMap)."""
    quoted = (f"{key}={json.dumps(mapping[key], ensure_ascii=False)}" for key in sorted(mapping))
    return "\n".join(quoted)


def resource_of(client: Client, pod: JsonDict, container: JsonObject, ref: JsonObject) -> str:
    """Return the value of a `resourceFieldRef`: an amount in units of its divisor, rounded up.

    A limit that is not set is what the node has to give. Source: ExtractContainerResourceValue and
    MergeContainerResourceLimits of k8s.io/kubernetes `pkg/api/v1/resource`.
    """
    kind, _, name = ref["resource"].partition(".")
    amount = ((container.get("resources") or {}).get(kind) or {}).get(name)
    node = pod["spec"].get("nodeName")
    if amount is None and kind == "limits" and node:
        try:
            amount = offered(client.get(NODES, node)).get(name)
        except ApiError as error:
            raise ConfigError(error.message) from error
    divisor = quantity.parse_any(ref.get("divisor") or "1") or 1
    return str(math.ceil(quantity.parse_any(amount or "0") / divisor))


def field_of(pod: JsonDict, path: str) -> str:
    """Return the value of a `fieldPath` of a pod. ConfigError: it is not supported."""
    if path in FIELDS:
        return FIELDS[path](pod)
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if match is None:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))

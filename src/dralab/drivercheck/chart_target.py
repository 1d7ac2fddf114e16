"""A driver as the DaemonSet of its chart: the container's command, variables and mounts.

The container that mounts the kubelet's registration directory is the driver. It runs as a process
with a mount namespace of its own, in which the paths of the chart are those of the bench's node.
The other objects of the chart are not created: a bench has neither a scheduler nor roles.
"""

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.contracts.cdi_cache import ContainerConfig
from dralab.drivercheck.node_view import command_with, offered
from dralab.drivercheck.rules import CheckNeed
from dralab.drivercheck.targets import (
    PROCESS_NEEDS,
    Places,
    ProcessInstance,
    TargetError,
    filled,
)
from dralab.node.container_environment import ConfigError, expand, field_of
from dralab.node.containers import ContainerStart, ContainerStartError
from dralab.node.images import mapped
from dralab.node.logs import ContainerLog
from dralab.node.mount_namespaces import NodePaths, launching, problem, spec_of
from dralab.node.privileges import privileges_of
from dralab.values.json_types import JsonDict, JsonObject

REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
NAMESPACE: Final = "default"
NO_POD: Final = "00000000-0000-4000-8000-000000000000"


def driver_of(documents: Sequence[JsonObject]) -> tuple[JsonDict, JsonDict]:
    """Return the DaemonSet of a chart and its container that registers with the kubelet.

    TargetError: there is none.
    """
    names = []
    for document in documents:
        if document.get("kind") != "DaemonSet":
            continue
        names.append(str(document["metadata"]["name"]))
        pod = document["spec"]["template"]["spec"]
        hosts = {
            v["name"]: v["hostPath"]["path"] for v in pod.get("volumes") or () if "hostPath" in v
        }
        for container in pod["containers"]:
            mounted = [hosts.get(each["name"], "") for each in container.get("volumeMounts") or ()]
            if any(f"{REGISTRY}/".startswith(f"{path.rstrip('/')}/") for path in mounted if path):
                return dict(document), dict(container)
    found = f"the DaemonSets {', '.join(names)} don't mount it" if names else "it has no DaemonSet"
    raise TargetError(f"the chart has no driver, which mounts {REGISTRY}: {found}")


@dataclass(frozen=True, slots=True)
class ChartTarget:
    """A driver of a chart; `images` maps its images to programs.

    `env` are variables in place of those of the chart.
    """

    documents: Sequence[JsonObject]
    images: Mapping[str, Sequence[str]]
    env: Mapping[str, str] = field(default_factory=dict)
    more: frozenset[CheckNeed] = frozenset()

    @property
    def name(self) -> str:
        """Its name in reports."""
        daemon_set, container = driver_of(self.documents)
        return f"DaemonSet {daemon_set['metadata']['name']}, container {container['name']}"

    @property
    def offers(self) -> frozenset[CheckNeed]:
        """What checks may need: also two instances, if it gets its pod's UID."""
        known = (PROCESS_NEEDS | self.more | offered()) - {CheckNeed.CDI_PLACE}
        _, container = driver_of(self.documents)
        told = any(
            (each.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath") == "metadata.uid"
            for each in container.get("env") or ()
        )
        return known | {CheckNeed.INSTANCES} if told else known

    def start(self, places: Places, pod_uid: str = "") -> ProcessInstance:
        """Start the container's command. TargetError: it can't be started here."""
        if why := problem():
            raise TargetError(f"a chart needs mount namespaces: {why}")
        daemon_set, container = driver_of(self.documents)
        pod = _pod(daemon_set, places, pod_uid)
        words = places.words(pod_uid)
        given = {name: filled(value, words) for name, value in self.env.items()}
        env = _variables(pod, container, self.documents, given)
        start = _container_start(pod, container, env, places)
        try:
            program = mapped(start, self.images)
        except ContainerStartError as error:
            raise TargetError(str(error)) from error
        if program is None:
            raise TargetError(
                f"image {start.image} has no program here: --image-map {start.image}=COMMAND, or "
                "=/FOLDER/ with its programs"
            )
        directory = _new_directory(places.root / "pods")
        volumes = {
            volume["name"]: _filled(self.documents, volume, directory)
            for volume in pod["spec"].get("volumes") or ()
            if "hostPath" not in volume
        }
        spec = spec_of(start, paths_of(places), directory, volumes)
        file = directory / "mounts.json"
        file.write_bytes(orjson.dumps(spec))
        command = [*launching(file), *program.argv]
        log = places.root / "driver.log"
        path = f"{program.folder}:{os.environ.get('PATH', '')}" if program.folder else None
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - the command under test
                command_with(command, places.boot_id, places.clock_offset),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "KUBECONFIG": str(places.kubeconfig),
                    **env,
                    **({"PATH": path} if path else {}),
                },
                start_new_session=True,
            )
        return ProcessInstance(process, log)


def paths_of(places: Places) -> NodePaths:
    """Return the places of the node's well-known paths."""
    return NodePaths.of(places.root, places.cdi)


def _pod(daemon_set: JsonObject, places: Places, pod_uid: str) -> JsonDict:
    template = daemon_set["spec"]["template"]
    metadata = {
        **(template.get("metadata") or {}),
        "name": f"{daemon_set['metadata']['name']}-check",
        "namespace": daemon_set["metadata"].get("namespace") or NAMESPACE,
        "uid": pod_uid or NO_POD,
    }
    status = {"hostIP": "127.0.0.1", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    spec = {"serviceAccountName": "default", **template["spec"], "nodeName": places.node}
    return {"metadata": metadata, "spec": spec, "status": status}


def _variables(
    pod: JsonDict, container: JsonObject, documents: Sequence[JsonObject], given: Mapping[str, str]
) -> dict[str, str]:
    """Return a container's variables, with overrides. TargetError."""
    found: dict[str, str] = {}
    if container.get("envFrom"):
        raise TargetError(f"container {container['name']} has envFrom: give its variables by env")
    for entry in container.get("env") or ():
        name, source = entry["name"], entry.get("valueFrom") or {}
        if name in given:
            continue
        key = source.get("configMapKeyRef") or {}
        if not source:
            found[name] = expand(entry.get("value") or "", {**found, **given})
        elif "fieldRef" in source:
            try:
                found[name] = field_of(pod, source["fieldRef"]["fieldPath"])
            except ConfigError as error:
                raise TargetError(f"variable {name}: {error}") from error
        elif text := dict(_data_of(documents, key.get("name"))).get(key.get("key", "")):
            found[name] = text
        elif not any(isinstance(of, dict) and of.get("optional") for of in source.values()):
            kinds = ", ".join(source)
            raise TargetError(f"variable {name} has {kinds}, of a cluster: --env {name}=VALUE")
    return {**found, **given}


def _container_start(
    pod: JsonDict, container: JsonObject, env: Mapping[str, str], places: Places
) -> ContainerStart:
    kinds = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    mounts: list[Mapping[str, Any]] = []
    for mount in container.get("volumeMounts") or ():
        source = (kinds[mount["name"]].get("hostPath") or {}).get("path", "")
        mounts.append(
            {
                "hostPath": source,
                "volume": mount["name"],
                "containerPath": mount["mountPath"],
                "subPath": mount.get("subPath", ""),
                "readOnly": bool(mount.get("readOnly")),
            }
        )
    command = [expand(word, env) for word in container.get("command") or ()]
    args = [expand(word, env) for word in container.get("args") or ()]
    return ContainerStart(
        namespace=pod["metadata"]["namespace"],
        pod=pod["metadata"]["name"],
        pod_uid=pod["metadata"]["uid"],
        node=places.node,
        name=container["name"],
        image=container.get("image", ""),
        argv=[*command, *args] if command else [],
        args=args,
        working_dir=container.get("workingDir", ""),
        privileges=privileges_of(pod, container),
        config=ContainerConfig(env=dict(env), mounts=mounts),
        annotations={},
        ends=False,
        log=ContainerLog(),
    )


def _new_directory(parent: Path) -> Path:
    for number in itertools.count():
        found = parent / str(number)
        try:
            found.mkdir(parents=True)
        except FileExistsError:
            continue
        return found
    raise AssertionError


def _filled(documents: Sequence[JsonObject], volume: JsonObject, directory: Path) -> Path:
    """Return the directory of a volume: files of a config map of the chart, else empty."""
    place = directory / f"volume-{volume['name']}"
    place.mkdir()
    name = (volume.get("configMap") or {}).get("name")
    for key, text in _data_of(documents, name):
        (place / key).write_text(text)
    return place


def _data_of(documents: Sequence[JsonObject], name: str | None) -> Iterator[tuple[str, str]]:
    for document in documents:
        if document.get("kind") == "ConfigMap" and document["metadata"]["name"] == name:
            yield from (document.get("data") or {}).items()

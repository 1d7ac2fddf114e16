"""The defaults of pods and of the pod templates inside other kinds.

Source: pkg/apis/core/v1/defaults.go of Kubernetes, and answers of a real server. This is on the
way of every pod that is created, so it is code and no table.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralab.values import images, quantity
from dralab.values.container_sums import at_peak
from dralab.values.json_types import JsonDict, JsonObject

CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
DEFAULT_MODE: Final = 0o644
MODE_VOLUMES: Final = ("configMap", "secret", "downwardAPI", "projected")
QOS_RESOURCES: Final = ("cpu", "memory")
HUGE_PAGES: Final = "hugepages-"


def default_pod_spec(spec: JsonDict) -> None:
    """Fill in what a pod's spec leaves out, in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for name in CONTAINER_LISTS:
        for container in spec.get(name) or ():
            _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def default_pod(spec: JsonDict) -> None:
    """Fill in what only pods have, not the templates of other kinds."""
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for name in CONTAINER_LISTS[:2]:
        for container in spec.get(name) or ():
            resources = container.get("resources")
            limits = resources.get("limits") if resources else None
            if limits:
                requests = resources.setdefault("requests", {})
                for resource, amount in limits.items():
                    requests.setdefault(resource, amount)
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    port["hostPort"] = port.get("hostPort") or port.get("containerPort", 0)
    if spec.get("resources"):
        _default_resources(spec)


def _default_resources(spec: JsonDict) -> None:
    """Fill in what a pod as a whole has, from its containers and its own limits."""

    def of(part: str) -> dict[str, str]:
        def amounts(container: JsonObject) -> dict[str, quantity.Number]:
            found = (container.get("resources") or {}).get(part) or {}
            return {name: quantity.parse_any(amount) for name, amount in found.items()}

        return {
            name: quantity.render(amount, "DecimalSI" if name == "cpu" else "BinarySI")
            for name, amount in at_peak(spec, amounts).items()
        }

    resources = spec["resources"]
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if not limits and not requests:
        return
    for name, amount in of("limits").items():
        if name.startswith(HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount)
    if limits:
        for name, amount in of("requests").items():
            if name in QOS_RESOURCES:
                requests.setdefault(name, amount)
        for name, amount in limits.items():
            if name in QOS_RESOURCES or name.startswith(HUGE_PAGES):
                requests.setdefault(name, amount)
    for part, amounts_ in (("limits", limits), ("requests", requests)):
        if amounts_:
            resources[part] = amounts_


def _default_container(container: JsonDict) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for each in container.get("env") or ():
        source = each.get("valueFrom")
        if source and "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _default_probe(container[name])
    if hooks := container.get("lifecycle"):
        if hooks.pop("stopSignal", None) is not None and not hooks:
            del container["lifecycle"]  # as where the gate ContainerStopSignals is off
        for hook in hooks.values():
            if "httpGet" in hook:
                _default_http(hook["httpGet"])


def _pull_policy(image: str) -> str:
    return "Always" if images.tag_of(image) == "latest" else "IfNotPresent"


def _default_probe(probe: JsonDict) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if "httpGet" in probe:
        _default_http(probe["httpGet"])
    if "grpc" in probe:
        probe["grpc"]["service"] = probe["grpc"].get("service") or ""


def _default_http(action: JsonDict) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


SOURCES: Final[Mapping[str, Mapping[str, Any]]] = {
    "azureDisk": {
        "cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False,
    },
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
}  # fmt: skip
"""What a source of a volume has where the client left it out."""


def _default_volume(volume: JsonDict) -> None:
    if len(volume) <= 1:
        volume["emptyDir"] = {}
        return
    for name in MODE_VOLUMES:
        if name in volume:
            volume[name].setdefault("defaultMode", DEFAULT_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "image" in volume and not volume["image"].get("pullPolicy"):
        volume["image"]["pullPolicy"] = _pull_policy(volume["image"].get("reference") or "")
    for source in _downward_sources(volume):
        for item in source.get("items") or ():
            if "fieldRef" in item:
                item["fieldRef"].setdefault("apiVersion", "v1")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    for name, defaults in SOURCES.items():
        if name in volume:
            volume[name] |= {**defaults, **volume[name]}
    if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _downward_sources(volume: JsonDict) -> Iterator[JsonDict]:
    if "downwardAPI" in volume:
        yield volume["downwardAPI"]
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "downwardAPI" in source:
            yield source["downwardAPI"]


def qos_class(spec: JsonDict) -> str:
    """Return the quality of service of a pod: Guaranteed, Burstable or BestEffort.

    Quantities are canonical; requests are not larger than limits.

    >>> qos_class({"containers": [{"resources": {"requests": {"cpu": "1"}}}]})
    'Burstable'
    """
    # Source: pkg/apis/core/v1/helper/qos/qos.go. It adds up all containers; since no request is
    # larger than its limit, the sums are equal only where each pair is.
    some, guaranteed = False, True
    lists = ("initContainers", "containers")
    holders = [each for name in lists for each in spec.get(name) or ()]
    for holder in [spec] if spec.get("resources") is not None else holders:
        resources = holder.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for resource in QOS_RESOURCES:
            wanted, most = requests.get(resource, "0"), limits.get(resource, "0")
            some = some or wanted != "0" or most != "0"
            if guaranteed and (most == "0" or not _equal(wanted, most)):
                guaranteed = False
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _equal(one: str, other: str) -> bool:
    return one == other or quantity.parse(one) == quantity.parse(other)

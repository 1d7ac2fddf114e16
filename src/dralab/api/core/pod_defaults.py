"""The defaults of pods and of the pod templates inside other kinds.

Source: pkg/apis/core/v1/defaults.go of Kubernetes, and answers of a real server. This is on the
way of every pod that is created, so it is code and no table.
"""

from collections.abc import Iterator
from typing import Final

from dralab.values import quantity
from dralab.values.json_types import JsonDict

CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
DEFAULT_MODE: Final = 0o644
MODE_VOLUMES: Final = ("configMap", "secret", "downwardAPI", "projected")
QOS_RESOURCES: Final = ("cpu", "memory")


def default_pod_spec(spec: JsonDict) -> None:
    """Fill in what a pod's spec leaves out, in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    host_network = spec.get("hostNetwork", False)
    for name in CONTAINER_LISTS:
        for container in spec.get(name) or ():
            _default_container(container, host_network=host_network)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def default_pod(spec: JsonDict) -> None:
    """Fill in what only pods have, not the templates of other kinds."""
    spec.setdefault("enableServiceLinks", True)
    for name in CONTAINER_LISTS[:2]:
        for container in spec.get(name) or ():
            resources = container.get("resources")
            limits = resources.get("limits") if resources else None
            if limits:
                requests = resources.setdefault("requests", {})
                for resource, amount in limits.items():
                    requests.setdefault(resource, amount)


def _default_container(container: JsonDict, *, host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        image = container.get("image", "")
        container["imagePullPolicy"] = "Always" if _is_latest(image) else "IfNotPresent"
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort", 0)
    for each in container.get("env") or ():
        source = each.get("valueFrom")
        if source and "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and "httpGet" in hook:
            _default_http(hook["httpGet"])


def _is_latest(image: str) -> bool:
    """Return whether an image's tag is `latest`, by name or for want of one."""
    if "@" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in {"", "latest"}


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


def _default_volume(volume: JsonDict) -> None:
    if len(volume) <= 1:
        volume["emptyDir"] = {}
        return
    for name in MODE_VOLUMES:
        if name in volume:
            volume[name].setdefault("defaultMode", DEFAULT_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for source in _downward_sources(volume):
        for item in source.get("items") or ():
            if "fieldRef" in item:
                item["fieldRef"].setdefault("apiVersion", "v1")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    if "iscsi" in volume:
        volume["iscsi"].setdefault("iscsiInterface", "default")
    if "rbd" in volume:
        for key, value in (("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")):
            volume["rbd"].setdefault(key, value)
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
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or ():
            resources = container.get("resources") or {}
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

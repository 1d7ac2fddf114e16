"""The nodes of a random cluster, and its volumes."""

from typing import Any

from builders import obj, taint, worker
from clusters.draft import DONGLE, HOST, IMAGES, ZONE, Draft, matching, named_in, rule
from dralab.values.json_types import JsonDict

STORAGE = "storage.k8s.io/v1"
CLASSES = {
    "now": ("disk.example.com", "Immediate"),
    "later": ("disk.example.com", "WaitForFirstConsumer"),
    "local": ("kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
}
UNREACHABLE = "node.kubernetes.io/unreachable"


def nodes(draft: Draft) -> None:
    for number in range(draft.choice([4, 5, 6, 7] if draft.calm else [1, 2, 3, 3, 4, 5])):
        labels = {"disk": draft.choice(["ssd", "hdd"]), "rack": str(number % 3)}
        if not draft.some("no-zone", 8):
            labels[ZONE] = draft.choice(draft.zones)
        taints, more = [], {}
        if draft.some("taint", 5):
            taints.append(taint("team", value=draft.choice(["red", "blue"])))
        if draft.some("prefer-taint", 4):
            taints.append(taint("slow", "PreferNoSchedule"))
        if draft.some("execute-taint", 12):
            taints.append(taint("leaving", "NoExecute"))
        if draft.some("pressure", 12):
            taints.append(taint("node.kubernetes.io/memory-pressure"))
        if draft.some("lost", 14):
            taints += [taint(UNREACHABLE), taint(UNREACHABLE, "NoExecute")]
        if draft.some("cordon", 10):
            more["unschedulable"] = True
            taints.append(taint("node.kubernetes.io/unschedulable"))
        made = worker(
            f"n{number}",
            cpu=draft.choice(["2", "4", "8", "3500m"]),
            memory=draft.choice(["4Gi", "8Gi", "16Gi"]),
            pods=draft.choice(["110", "110", "2"]),
            labels=labels,
            taints=taints,
            extra={DONGLE: "2"} if draft.some("dongles", 3) else {},
            **more,
        )
        made["status"]["images"] = [
            {"names": [image], "sizeBytes": size}
            for image, size in IMAGES.items()
            if draft.one_in(2)
        ]
        draft.add(made)


def storage(draft: Draft) -> None:
    for name, (provisioner, mode) in CLASSES.items():
        made = obj("StorageClass", name, api=STORAGE, provisioner=provisioner)
        draft.add(made | {"volumeBindingMode": mode})
    draft.add(
        *_bound("zonal", matching(rule(ZONE, draft.choice(draft.zones)))),
        *_bound("single", None, mode="ReadWriteOncePod"),
        _claim("unbound", "now"),
        _claim("provisioned", "later"),
        _claim("local", "local"),
    )
    old, its_claim = _bound("labelled", None)
    old["metadata"]["labels"] = {ZONE: draft.choice(draft.zones)}
    draft.add(old, its_claim)
    if draft.one_in(2):
        draft.add(_volume("local-disk", matching(rule(HOST, "n0")), storageClassName="local"))


def _volume(name: str, near: JsonDict | None, **more: Any) -> JsonDict:
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
        **more,
    }
    spec |= {"nodeAffinity": {"required": near}} if near else {}
    return obj("PersistentVolume", name, api="v1", spec=spec, status={"phase": "Available"})


def _claim(name: str, storage_class: str, mode: str = "ReadWriteOnce") -> JsonDict:
    spec = {
        "accessModes": [mode],
        "storageClassName": storage_class,
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "5Gi"}},
    }
    status = {"phase": "Pending"}
    return named_in("PersistentVolumeClaim", name, "v1", spec=spec, status=status)


def _bound(name: str, near: JsonDict | None, mode: str = "ReadWriteOnce") -> list[JsonDict]:
    """A volume, and the claim that has it."""
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": name}
    more = {"storageClassName": "now", "claimRef": reference, "accessModes": [mode]}
    volume, claim = _volume(f"pv-{name}", near, **more), _claim(name, "now", mode)
    claim["spec"]["volumeName"] = f"pv-{name}"
    claim["metadata"] |= {"uid": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    for each in (volume, claim):
        each["status"] = {"phase": "Bound"}
    return [volume, claim]

"""What our controllers write and say is what the stock kube-controller-manager writes and says.

Both get the same objects and changes; statuses and events are compared, without times, identities
and made-up names.
"""

import json
import re
import time
from contextlib import ExitStack

import pytest

import stockparts
from dralab.cluster import Cluster
from dralab.components.control_plane import CONTROLLERS, ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from dralab.objects.pods import is_ready
from dralab.runtime.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
)

pytestmark = [pytest.mark.conformance, stockparts.needs(stockparts.MANAGER)]

PATIENCE = 60
TOLD = (
    DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, REPLICATION_CONTROLLERS, JOBS,
    DISRUPTION_BUDGETS, VOLUME_CLAIMS, ENDPOINTS, ENDPOINT_SLICES, CONTROLLER_REVISIONS,
)  # fmt: skip
# A number of a retry, or of a controller's pace, and what differs between two clusters.
LEFT_OUT = {
    "observedGeneration", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName",
    "name", "nodeName", "addresses", "ip", "lastTransitionTime", "lastUpdateTime", "lastProbeTime",
    "startTime", "completionTime", "currentRevision", "updateRevision", "data",
    "controller.kubernetes.io/hash", "controller-revision-hash", "pod-template-hash",
    "controller-uid", "batch.kubernetes.io/controller-uid",
    "endpoints.kubernetes.io/last-change-trigger-time",
}  # fmt: skip
MADE_UP = re.compile(r"-[bcdf-hj-np-tv-xz2-9]{8,10}(?:-[a-z0-9]{5})?\b|-[a-z0-9]{5}\b")
# client-go gathers an event that comes often; ours is counted. Whether a budget was looked at before
# its pods were made, and whether a write came too late, is chance.
NOT_COMPARED = (
    "(combined from similar events)",
    "NoPods",
    "the object has been modified",
    "FailedToCreateEndpoint",
)


def workload(name, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": containers()}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template} | spec
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def containers(**more):
    container = {"name": "c", "image": "busybox", "command": ["sleep", "1000"]}
    return {"terminationGracePeriodSeconds": 1, "containers": [container], **more}


def job(name, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": containers(restartPolicy="Never")}
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"template": template, **spec}}


def with_claims(name, deleted, scaled):
    asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none"}
    made = {"metadata": {"name": "data"}, "spec": asked | storage("1Gi")}
    return workload(
        name,
        replicas=2,
        podManagementPolicy="Parallel",
        serviceName=name,
        volumeClaimTemplates=[made],
        persistentVolumeClaimRetentionPolicy={"whenDeleted": deleted, "whenScaled": scaled},
    )


def storage(size):
    return {"resources": {"requests": {"storage": size}}}


def budget(name, **spec):
    spec["selector"] = {"matchLabels": {"app": name}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def service(name, app, **spec):
    body = {"selector": {"app": app}, "ports": [{"port": 80}], **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": body}


FIRST = [
    (DEPLOYMENTS, workload("web", replicas=3)),
    (DEPLOYMENTS, workload("once", replicas=2, strategy={"type": "Recreate"})),
    (DEPLOYMENTS, workload("paused", paused=True)),
    (REPLICA_SETS, workload("set", replicas=2)),
    (
        REPLICATION_CONTROLLERS,
        {
            "metadata": {"name": "old", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"app": "old"},
                "template": {"metadata": {"labels": {"app": "old"}}, "spec": containers()},
            },
        },
    ),
    (STATEFUL_SETS, workload("store", replicas=2, serviceName="store")),
    (STATEFUL_SETS, with_claims("kept", "Retain", "Retain")),
    (STATEFUL_SETS, with_claims("gone", "Delete", "Delete")),
    (DAEMON_SETS, workload("agent")),
    (DAEMON_SETS, workload("calm", updateStrategy={"type": "OnDelete"})),
    (JOBS, job("late", parallelism=2, completions=2, activeDeadlineSeconds=4)),
    (JOBS, job("halted", suspend=True)),
    (
        PODS,
        {
            "metadata": {"name": "alone", "namespace": "default", "labels": {"app": "alone"}},
            "spec": containers(),
        },
    ),
    (DISRUPTION_BUDGETS, budget("web", minAvailable="50%")),
    (DISRUPTION_BUDGETS, budget("agent", maxUnavailable=1)),
    (DISRUPTION_BUDGETS, budget("alone", maxUnavailable=1)),
    (DISRUPTION_BUDGETS, budget("nobody", maxUnavailable=1)),
    (SERVICES, service("web", "web")),
    (SERVICES, service("store", "store", clusterIP="None")),
    (SERVICES, service("empty", "nobody")),
]
ANOTHER = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
THEN = [
    *(
        (kind, name, ANOTHER)
        for kind, name in (
            (DEPLOYMENTS, "web"),
            (DEPLOYMENTS, "once"),
            (STATEFUL_SETS, "store"),
            (DAEMON_SETS, "agent"),
            (DAEMON_SETS, "calm"),
        )
    ),
    (REPLICA_SETS, "set", {"spec": {"replicas": 1}}),
    (STATEFUL_SETS, "kept", {"spec": {"replicas": 1}}),
    (STATEFUL_SETS, "gone", {"spec": {"replicas": 1}}),
    (JOBS, "halted", {"spec": {"suspend": False}}),
]
BACK = {"spec": {"template": {"metadata": {"annotations": {"version": None}}}}}


def plain(value):
    """Return what is compared of a value."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        return sorted(map(plain, value), key=str)
    return MADE_UP.sub("-#", value) if isinstance(value, str) else value


def picture(client):
    """Return what controllers have written and said, by what it is about."""
    found = {}
    for resource in TOLD:
        for item in client.list(resource, "default").items:
            metadata = item["metadata"]
            about = f"{resource.plural} {MADE_UP.sub('-#', metadata['name'])}"
            told = {name: part for name, part in item.items() if name not in {"metadata", "spec"}}
            told |= {name: metadata.get(name) or {} for name in ("labels", "annotations")}
            told["owners"] = [owner["kind"] for owner in metadata.get("ownerReferences", ())]
            found.setdefault(about, []).append(plain(told))
    for told in found.values():
        told.sort(key=str)
    return found | {"events": sorted(set(_events(client)))}


def _events(client):
    for event in client.list(EVENTS, "default").items:
        about = event["involvedObject"]
        told = " ".join((about["kind"], about["name"], event["type"], event["reason"]))
        text = f"{told}: {event['message']} ({event['source'].get('component')})"
        if about["kind"] not in {"Pod", "Node"} and not any(each in text for each in NOT_COMPARED):
            yield MADE_UP.sub("-#", text)


def differences(one, other):
    return {
        key: (one.get(key), other.get(key))
        if key != "events"
        else (set(one[key]) - set(other[key]), set(other[key]) - set(one[key]))
        for key in one.keys() | other.keys()
        if one.get(key) != other.get(key)
    }


def until_alike(stock, ours):
    """Wait until both have come to rest in the same state."""
    end, before = time.monotonic() + PATIENCE, None
    while True:
        time.sleep(3)
        now = picture(stock.client), picture(ours.client)
        if now[0] == now[1] and now == before:
            return
        before = now
        assert time.monotonic() < end, json.dumps(differences(*now), indent=1, default=sorted)


def test_what_controllers_write_and_say_is_the_same(tmp_path):
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(
                Cluster(components=[ControlPlane(without=without), Nodes(NodeOptions(nodes=2))])
            )
            for without in ((CONTROLLERS,), ())
        ]
        stack.enter_context(stockparts.controller_manager(clusters[0].kubeconfig, tmp_path))
        end = time.monotonic() + PATIENCE
        while not all(
            is_ready(node) for each in clusters for node in each.client.list(NODES).items
        ):
            assert time.monotonic() < end, "the nodes never became ready"
            time.sleep(0.1)
        for cluster in clusters:
            for resource, body in FIRST:
                cluster.client.create(resource, body, "default")
        until_alike(*clusters)
        for cluster in clusters:
            for resource, name, patch in THEN:
                cluster.client.patch(resource, name, patch, "default")
        until_alike(*clusters)
        for cluster in clusters:
            cluster.client.patch(DEPLOYMENTS, "web", BACK, "default")
            cluster.client.delete(STATEFUL_SETS, "gone", "default")
            cluster.client.delete(SERVICES, "web", "default")
            cluster.client.delete(DAEMON_SETS, "agent", "default")
        until_alike(*clusters)

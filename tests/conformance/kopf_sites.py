"""An operator for Sites on kopf; BUG in the environment names the promise that it breaks.

The same in Go is clientgo/siteoperator, where each bug is told.
"""

import os
import threading

import kopf
import kubernetes
from kubernetes.client.exceptions import ApiException

BUG = os.environ.get("BUG", "")
FIRST_PORT = 8000
PLACE = ("example.com", "v1", "default", "sites")
# One site after the other: kopf runs handlers of several objects at a time.
LOCK = threading.Lock()
KNOWN = []


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.persistence.finalizer = "example.com/record"
    kubernetes.config.load_kube_config(os.environ["KUBECONFIG"])


def maps():
    return kubernetes.client.CoreV1Api()


def sites():
    return kubernetes.client.CustomObjectsApi()


def unless(code, ask, *given, **named):
    """Ask; the answer with this code is as good."""
    try:
        return ask(*given, **named)
    except ApiException as error:
        if error.status != code:
            raise kopf.TemporaryError(f"{error.status} {error.reason}", delay=5) from error
        return None


def change_directory(change):
    while True:
        directory = maps().read_namespaced_config_map("directory", "default")
        before = dict(directory.data or {})
        data = dict(before)
        change(data)
        if data == before:
            return
        directory.data = data
        try:
            maps().replace_namespaced_config_map("directory", "default", directory)
        except ApiException as error:
            if error.status != 409:
                raise
            if BUG != "no-recheck":
                continue
        return


def port_of(site):
    return (site.get("status") or {}).get("port")


def port():
    if BUG == "stale-read":
        if not KNOWN:
            found = sites().list_namespaced_custom_object(*PLACE, resource_version="0")
            KNOWN.append({port_of(each) for each in found["items"]})
        ports = KNOWN[0]
    else:
        found = sites().list_namespaced_custom_object(*PLACE)
        ports = {port_of(each) for each in found["items"]}
    chosen = next(p for p in range(FIRST_PORT, FIRST_PORT + 1000) if p not in ports)
    ports.add(chosen)
    return chosen


def settings_of(name, uid, status):
    body = {"metadata": {"labels": {"site": name}}, "data": {"theme": "plain"}}
    if BUG == "orphan":
        body["metadata"]["generateName"] = f"{name}-"
        return maps().create_namespaced_config_map("default", body).metadata.name
    owner = {"apiVersion": "example.com/v1", "kind": "Site", "name": name, "uid": uid}
    body["metadata"] |= {"name": f"{name}-settings", "ownerReferences": [owner]}
    unless(409, maps().create_namespaced_config_map, "default", body)
    return f"{name}-settings"


@kopf.on.resume("example.com", "v1", "sites", backoff=5)
@kopf.on.create("example.com", "v1", "sites", backoff=5)
def create(name, uid, status, **_):
    if status.get("port"):
        return
    body = {"metadata": {"name": name}, "data": {"site": name}}
    create_record = maps().create_namespaced_config_map
    if BUG == "requeue-storm":
        while True:
            try:
                create_record("registry", body)
                break
            except ApiException:
                continue
    else:
        unless(409, create_record, "registry", body)
    change_directory(lambda data: data.__setitem__(name, "listed"))
    settings = settings_of(name, uid, status)
    with LOCK:
        done = {"status": {"port": port(), "settings": settings}}
        sites().patch_namespaced_custom_object_status(*PLACE, name, done)


@kopf.on.delete("example.com", "v1", "sites", backoff=5, optional=False)
def delete(name, status, **_):
    change_directory(lambda data: data.pop(name, None))
    if BUG == "orphan" and status.get("settings"):
        unless(404, maps().delete_namespaced_config_map, status["settings"], "default")
    if BUG == "lost-finalizer":
        gone = {"metadata": {"finalizers": None}}
        sites().patch_namespaced_custom_object(*PLACE, name, gone)
    unless(404, maps().delete_namespaced_config_map, name, "registry")

"""What the tests of charts share: objects of a manifest are created, and something is waited for."""

import threading

from dralab.runtime.client import Resource


def create(client, objects):
    for obj in filter(None, objects):
        group, _, version = obj["apiVersion"].rpartition("/")
        kind, namespace = obj["kind"].lower(), obj["metadata"].get("namespace", "")
        plural = (
            kind if kind.endswith("parameters") else kind + ("es" if kind.endswith("s") else "s")
        )
        client.create(Resource(group, version, plural, bool(namespace)), obj, namespace)


def until(look, good):
    pause = threading.Event()
    for _ in range(400):
        found = look()
        if good(found):
            return found
        pause.wait(0.1)
    raise AssertionError(found)


def all_ready(pods, count):
    waiting = [{"ready": False}]
    return len(pods) == count and all(
        status["ready"]
        for pod in pods
        for status in pod["status"].get("containerStatuses", waiting)
    )

"""A scheduler that expects to run inside a cluster: HTTPS, CA and token of a service account.

A coin is tossed for each node; a pod that loses every toss is never looked at again.
"""

import json
import os
import random
import ssl
import sys
import urllib.request
from pathlib import Path

NAME = "random-scheduler"
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/var/run/secrets/kubernetes.io/serviceaccount")
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
coin = random.Random(2)  # noqa: S311 - not a secret


def ask(path, body=None):
    headers = {
        "Accept": "application/json, */*",
        "Authorization": f"Bearer {(folder / 'token').read_text()}",
        "Content-Type": "application/json",
    }
    data = None if body is None else json.dumps(body).encode()
    url = f"https://{host}:{port}{path}"
    request = urllib.request.Request(url, data, headers)
    return urllib.request.urlopen(request, context=context)  # noqa: S310 - it is https


nodes = json.load(ask("/api/v1/nodes?limit=500&resourceVersion=0"))["items"]
listed = json.load(ask("/api/v1/pods?limit=500&resourceVersion=0"))["metadata"]["resourceVersion"]
for line in ask(f"/api/v1/pods?resourceVersion={listed}&timeoutSeconds=325&watch=true"):
    event = json.loads(line)
    pod, metadata = event["object"], event["object"]["metadata"]
    mine = pod["spec"]["schedulerName"] == NAME and not pod["spec"].get("nodeName")
    if event["type"] != "ADDED" or not mine:
        continue
    willing = [node["metadata"]["name"] for node in nodes if coin.random() < 0.5]
    if not willing:
        continue
    where = f"/api/v1/namespaces/{metadata['namespace']}"
    target = {"kind": "Node", "name": willing[0], "apiVersion": "v1"}
    about = {key: metadata.get(key) for key in ("name", "namespace")} | {"creationTimestamp": None}
    ask(f"{where}/pods/{metadata['name']}/binding", {"metadata": about, "target": target}).read()
    told = {
        "metadata": {"generateName": metadata["name"] + "-"},
        "reason": "Scheduled",
        "type": "Normal",
        "message": f"Placed pod [{metadata['namespace']}/{metadata['name']}] on {willing[0]}\n",
        "involvedObject": {"kind": "Pod", **about},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "eventTime": None,
    }
    ask(f"{where}/events", told).read()

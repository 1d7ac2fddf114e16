"""Makes a copy of each ConfigMap that wants one; with `--careless` it does not look for earlier ones."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

SERVER = os.environ["DRALAB_SERVER"]
MAPS = "/api/v1/namespaces/default/configmaps"


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(SERVER + path, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


done = set()
while True:
    try:
        for item in ask("GET", f"{MAPS}?resourceVersion=0")["items"]:
            name = item["metadata"]["name"]
            if item.get("data", {}).get("copy") != "yes" or name in done:
                continue
            copies = ask("GET", f"{MAPS}?labelSelector=of%3D{name}")["items"]
            if "--careless" in sys.argv or not copies:
                metadata = {"generateName": f"{name}-", "labels": {"of": name}}
                ask("POST", MAPS, {"metadata": metadata})
            done.add(name)
    except urllib.error.HTTPError:
        pass
    time.sleep(2)  # noqa: TID251 - its clock is virtual

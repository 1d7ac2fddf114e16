"""Makes a copy of each ConfigMap that wants one, by list and watch; the copy has the time."""

import json
import os
import time
import urllib.error
import urllib.request

SERVER = os.environ["DRALAB_SERVER"]
MAPS = "/api/v1/namespaces/default/configmaps"


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(SERVER + path, data=data, method=method, headers=headers)
    return urllib.request.urlopen(request)


def copy(item):
    if item.get("data", {}).get("copy") == "yes":
        begun = str(int(time.time()) // 30 * 30)  # noqa: TID251 - its clock is virtual
        metadata = {"name": item["metadata"]["name"] + "-copy"}
        try:
            ask("POST", MAPS, {"metadata": metadata, "data": {"at": begun}}).read()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise


revision = ""
while True:
    try:
        if not revision:
            listed = json.load(ask("GET", f"{MAPS}?resourceVersion=0"))
            for each in listed["items"]:
                copy(each)
            revision = listed["metadata"]["resourceVersion"]
        for line in ask("GET", f"{MAPS}?watch=true&resourceVersion={revision}"):
            event = json.loads(line)
            if event["type"] == "ERROR":
                revision = ""
                break
            copy(event["object"])
            revision = event["object"]["metadata"]["resourceVersion"]
    except (OSError, ValueError):
        time.sleep(1)  # noqa: TID251 - its clock is virtual

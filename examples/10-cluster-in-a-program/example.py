"""A server in this process, a client without HTTP, one with HTTP, and a watch."""

import json
import urllib.request

from dralab.api.status import ApiError
from dralab.cluster import Cluster
from dralab.runtime.client import Resource

CONFIGMAPS = Resource("", "v1", "configmaps")

with Cluster(seed=1) as cluster:
    client = cluster.client
    watch = client.watch(CONFIGMAPS, revision=client.list(CONFIGMAPS).revision)

    made = client.create(
        CONFIGMAPS, {"metadata": {"name": "colours"}, "data": {"sky": "blue"}}, "default"
    )
    client.patch(CONFIGMAPS, "colours", {"data": {"grass": "green"}}, "default")

    # A client that has not seen the patch cannot overwrite it.
    try:
        client.update(CONFIGMAPS, {**made, "data": {"sky": "grey"}})
    except ApiError as error:
        print(error.code, error.reason, "-", error.message)

    # Other clients use HTTP, in any language, with cluster.kubeconfig or cluster.url.
    url = f"{cluster.url}/api/v1/namespaces/default/configmaps/colours"
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server
        print(json.load(answer)["data"])

    client.delete(CONFIGMAPS, "colours", "default")
    while event := watch.next(timeout=0):
        print(event.type, event.object["data"])

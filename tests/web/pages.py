"""A small cluster for the page, and a way to ask its ASGI applications without sockets."""

import asyncio
import json

from builders import claim, counter_set, device, device_class, pod, pool, request, worker
from dralab.kernel.clock import ManualClock
from dralab.web.desk import Desk
from dralab.web.sources import FixedSource

HOSTILE = "<img src=x onerror=alert(1)>"


def stored(item, when="2026-11-01T10:00:00Z"):
    """Return an object as a server stores it."""
    metadata = item["metadata"]
    found = {
        "uid": f"u-{item['kind']}-{metadata['name']}",
        "creationTimestamp": when,
        "resourceVersion": "7",
    }
    return item | {"metadata": metadata | found}


def cluster():
    """One pod that holds one of two devices of n1, one that wants two, and a cut card on n2."""
    holding = claim("has", request("r0", "gpu"), namespace="ml")
    holding["status"] = {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r0", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
                ]
            }
        },
        "reservedFor": [{"resource": "pods", "name": "runs", "uid": "u-Pod-runs"}],
    }
    wanting = claim("wants", request("r0", "gpu", count=2), namespace="ml")
    return [
        worker("n1", labels={"topology.kubernetes.io/zone": "z1", "example.com/rack": "r1"}),
        worker("n2") | {"spec": {"unschedulable": True}},
        device_class("gpu"),
        *pool("n1", device("d0"), device("d1"), node="n1"),
        *pool(
            "n2",
            device("half-0", consumes={"card": {"slots": 1}}),
            device("whole", consumes={"card": {"slots": 2}}),
            device("half-1", consumes={"card": {"slots": 1}}),
            node="n2",
            counters=[counter_set("card", slots=2)],
        ),
        stored(holding),
        stored(wanting),
        stored(
            pod(
                "runs",
                namespace="ml",
                claims={"g": "has"},
                nodeName="n1",
            )
        ),
        stored(
            pod("waits", namespace="ml", claims={"g": "wants"}),
            "2026-11-01T11:00:00Z",
        ),
    ]


def waiting_pods(number_of, *, namespace, **how):
    """Yield pods of a namespace that each want devices of their own."""
    for number in range(number_of):
        name = f"{namespace}-{number}"
        yield stored(claim(name, request("r0", "gpu", **how), namespace=namespace))
        yield stored(
            pod(name, namespace=namespace, claims={"g": name}), f"2026-11-01T12:00:0{number}Z"
        )


def desk(objects=None):
    """Return the desk of a cluster that does not change."""
    source = FixedSource(cluster() if objects is None else objects)
    return Desk(source, ManualClock(), "lab", live=False)


def event(about, name, minute, **more):
    """Return an event about an object of the namespace `ml`."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{minute}", "namespace": "ml"},
        "involvedObject": {"kind": about, "name": name, "namespace": "ml"},
        "lastTimestamp": f"2026-11-01T10:{minute:02}:00Z",
        "reason": "Said",
        **more,
    }


class PageClient:
    """Asks an ASGI application, as a browser on this machine would."""

    def __init__(self, app):
        self.app = app
        self.told = None

    def ask(self, path, *, method="GET", body=None, token="", **headers):
        """Return status, headers and content of an answer."""
        return asyncio.run(self._ask(path, method, body, token, headers))

    async def _ask(self, path, method, body, token, headers):
        path, _, query = path.partition("?")
        given = {"host": "127.0.0.1:8000", "user-agent": "Mozilla/5.0"}
        content = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        if content:
            given |= {"content-length": str(len(content)), "content-type": "application/json"}
        if token:
            given["authorization"] = f"Bearer {token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
            "client": ("127.0.0.1", 1),
        }
        gone = asyncio.Event()
        sent, parts = [], [{"type": "http.request", "body": content, "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if message.get("more_body"):  # a stream: the browser has seen enough of it
                gone.set()

        await self.app(scope, receive, send)
        self.app.loop = None  # each question runs in a loop of its own
        head = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], head, b"".join(each.get("body", b"") for each in sent[1:])

    def json(self, path, **more):
        """Return status and JSON of an answer."""
        status, _, content = self.ask(path, **more)
        return status, json.loads(content)

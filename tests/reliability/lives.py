"""Lives of pods with devices while something is killed again and again, and what must hold then.

A watch that goes on over the kills sees every state of every claim.
"""

import http.client
import itertools
import json
import random
import threading
from collections import Counter

from reliability.processes import Connection

CLASS = "fake.3-shake.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
PODS = "/api/v1/namespaces/default/pods"
BROKEN = (http.client.HTTPException, OSError, json.JSONDecodeError)
# How a pod ends: by itself, with this code, or by being deleted while it runs.
WAYS = {"good": "Succeeded", "bad": "Failed", "deleted": None}


class Asked:
    """A server that is there, or will be again: `there` says so, `host` and `access` how."""

    def __init__(self):
        self.there = threading.Event()
        self.over = False
        self.kills = 0
        self.host = ""
        self.access = None  # without TLS

    def ask(self, *request):
        """Ask until there is an answer: what was sent may have been done all the same."""
        while True:
            self.there.wait()
            connection = Connection(self.host, access=self.access)
            try:
                return connection.ask(*request)
            except BROKEN:
                continue
            finally:
                connection.close()


class Watcher(threading.Thread):
    """Sees every state of every claim, over all kills; notes what must never be."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab = lab
        self.claims = {}
        self.revision = ""
        self.wrong = []
        self.events = self.gaps = 0
        self.most = 0

    def run(self):
        while not self.lab.over:
            self.lab.there.wait()
            connection = Connection(self.lab.host, timeout=5, access=self.lab.access)
            try:
                if not self.revision:
                    _, found = connection.ask("GET", CLAIMS)
                    self.claims = {item["metadata"]["uid"]: item for item in found["items"]}
                    self.revision = found["metadata"]["resourceVersion"]
                    self.gaps += 1
                    self.check(None)
                query = f"?watch=true&allowWatchBookmarks=true&resourceVersion={self.revision}"
                with connection.stream(CLAIMS + query) as stream:
                    while line := stream.readline():
                        self.take(json.loads(line))
            except BROKEN:
                continue
            finally:
                connection.close()

    def take(self, event):
        item = event["object"]
        if event["type"] == "ERROR":
            self.revision = ""
            return
        self.revision = item["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return
        self.events += 1
        if event["type"] == "DELETED":
            self.claims.pop(item["metadata"]["uid"], None)
        else:
            self.claims[item["metadata"]["uid"]] = item
            self.check(item)

    def check(self, item):
        given = Counter(device for claim in self.claims.values() for device in devices(claim))
        self.most = max(self.most, len(given))
        twice = [device for device, count in given.items() if count > 1]
        if twice:
            self.wrong.append(f"given twice: {twice}")
        users = len((item or {}).get("status", {}).get("reservedFor", ()))
        if users > 1:
            self.wrong.append(f"{item['metadata']['name']}: {users} users")


def devices(claim):
    allocation = claim.get("status", {}).get("allocation") or {}
    return [(r["pool"], r["device"]) for r in allocation.get("devices", {}).get("results", ())]


def spec_of(count):
    request = {"name": "r", "exactly": {"deviceClassName": CLASS, "count": count}}
    return {"devices": {"requests": [request]}}


def objects(number, dice):
    """Return how a pod shall end, and the objects of its life, as (path, object)."""
    way = dice.choice(["good", "good", "bad", "deleted"])
    name, named = f"p{number}", dice.random() < 0.4
    entry = {"resourceClaimName": name} if named else {"resourceClaimTemplateName": "t"}
    # Both runtimes understand it.
    script = f"sleep {dice.uniform(0, 1):.2f}; exit {3 if way == 'bad' else 0}"
    if way == "deleted":
        script = "sleep 100000"
    pod = {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "c", **entry}],
            "containers": [
                {
                    "name": "m",
                    "image": "x",
                    "command": ["sh", "-c", script],
                    "resources": {"claims": [{"name": "c"}]},
                },
            ],
        },
    }
    found = [(PODS, pod)]
    if named:
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": spec_of(dice.choice([1, 2])),
        }
        found.insert(0, (CLAIMS, claim))
    return way, found


def live(lab, watcher, total, *, seed, kill, each=0.16, least=0):
    """Let so many pods live and end while `kill(chance)` is called again and again.

    `kill` waits as long as it likes, kills something and brings it back. There are more pods
    where `least` kills take longer.
    """
    dice, pause = random.Random(seed), threading.Event()
    template = {"metadata": {"name": "t"}, "spec": {"spec": spec_of(1)}}
    assert lab.ask("POST", TEMPLATES, template)[0] in {201, 409}
    created = threading.Event()
    failures = []

    def kill_now_and_then():
        chance = random.Random(seed + 1000)
        try:
            while not created.is_set():
                kill(chance)
        except BaseException as error:
            failures.append(error)
            raise

    killer = threading.Thread(target=kill_now_and_then, daemon=True)
    killer.start()
    try:
        ways, leaving = {}, []
        for number in itertools.count():
            if failures or (number >= total and lab.kills >= least):
                break
            way, made = objects(number, dice)
            for path, obj in made:
                status, answer = lab.ask("POST", path, obj)
                assert status in {201, 409}, answer
            ways[f"p{number}"] = way
            if way == "deleted":
                leaving.append(f"p{number}")
            if len(leaving) > 15:
                remove(lab, leaving.pop(0))
            # No more at a time than there are devices for, or nothing ends.
            pause.wait(dice.uniform(0, each))
    finally:
        created.set()
        killer.join()
    assert failures == []
    for name in leaving:
        remove(lab, name)
    pods = settled(lab, ways, pause)
    assert {name: pods.get(name) for name in ways} == {n: WAYS[w] for n, w in ways.items()}
    # Nothing is held for pods that have ended.
    held = at_last(lab, pause, lambda items: not any(c.get("status") for c in items))
    assert held == []
    for name in ways:
        lab.ask("DELETE", f"{PODS}/{name}")
        lab.ask("DELETE", f"{CLAIMS}/{name}")
    assert at_last(lab, pause, lambda items: not items) == []
    assert lab.ask("GET", PODS)[1]["items"] == []
    assert watcher.wrong == [], watcher.wrong
    assert watcher.events > 4 * total


def remove(lab, name):
    status, answer = lab.ask("DELETE", f"{PODS}/{name}")
    assert status in {200, 202, 404}, answer


def settled(lab, ways, pause):
    """Return the phases once every pod has come to its end, or after two minutes."""
    for _ in range(240):
        items = lab.ask("GET", PODS)[1]["items"]
        found = {item["metadata"]["name"]: item["status"]["phase"] for item in items}
        if all(found.get(name) == WAYS[way] for name, way in ways.items()):
            break
        pause.wait(0.5)
    return found


def at_last(lab, pause, good):
    """Return the claims that keep `good` from being true, after a minute at most."""
    for _ in range(120):
        items = lab.ask("GET", CLAIMS)[1]["items"]
        if good(items):
            return []
        pause.wait(0.5)
    return [
        (c["metadata"]["name"], c["metadata"].get("finalizers"), c.get("status")) for c in items
    ]

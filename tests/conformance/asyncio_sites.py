"""An operator for Sites twice, on kopf and on kr8s, with what asyncio has and nothing that blocks.

BUG in the environment names the promise that it breaks. The same in Go is clientgo/siteoperator,
where each bug is told.
"""

import asyncio
import os

import aiohttp
import httpx
import kopf
import kr8s.asyncio

BUG = os.environ.get("BUG", "")
FIRST_PORT = 8000
FINALIZER = "example.com/record"
SITES = "/apis/example.com/v1/namespaces/default/sites"
MAPS = "/api/v1/namespaces/default/configmaps"
RECORDS = "/api/v1/namespaces/registry/configmaps"
MERGE = "application/merge-patch+json"
# One site after the other: kopf runs handlers of several objects at a time.
LOCK = asyncio.Lock()
KNOWN = []


class Refused(Exception):  # noqa: N818 - the answer of a server
    def __init__(self, code):
        super().__init__(f"the server answers {code}")
        self.code = code


class Operator:
    """What is done for a site; `ask` sends a request and returns code and answer."""

    def __init__(self, ask):
        self.send = ask

    async def ask(self, method, path, body=None, *, fine=(), **more):
        code, found = await self.send(method, path, body, **more)
        if code >= 400 and code not in fine:
            raise Refused(code)
        return found if code < 400 else None

    async def change_directory(self, change):
        while True:
            directory = await self.ask("GET", f"{MAPS}/directory")
            data = dict(directory.get("data") or {})
            change(data)
            if data == (directory.get("data") or {}):
                return
            code, _ = await self.send("PUT", f"{MAPS}/directory", {**directory, "data": data})
            if code == 409 and BUG != "no-recheck":
                continue
            if code >= 400 and code != 409:
                raise Refused(code)
            return

    async def port(self):
        if KNOWN and BUG == "stale-read":
            taken = KNOWN[0]
        else:
            old = "?resourceVersion=0" if BUG == "stale-read" else ""
            found = await self.ask("GET", f"{SITES}{old}")
            taken = {(each.get("status") or {}).get("port") for each in found["items"]}
            KNOWN.append(taken)
        chosen = next(p for p in range(FIRST_PORT, FIRST_PORT + 1000) if p not in taken)
        taken.add(chosen)
        return chosen

    async def settings_of(self, name, uid):
        body = {"metadata": {"labels": {"site": name}}, "data": {"theme": "plain"}}
        if BUG == "orphan":
            body["metadata"]["generateName"] = f"{name}-"
            return (await self.ask("POST", MAPS, body))["metadata"]["name"]
        owner = {"apiVersion": "example.com/v1", "kind": "Site", "name": name, "uid": uid}
        body["metadata"] |= {"name": f"{name}-settings", "ownerReferences": [owner]}
        await self.ask("POST", MAPS, body, fine=(409,))
        return f"{name}-settings"

    async def make(self, name):
        site = await self.ask("GET", f"{SITES}/{name}", fine=(404,))
        if site is None or "deletionTimestamp" in site["metadata"]:
            return
        if (site.get("status") or {}).get("port"):
            return
        body = {"metadata": {"name": name}, "data": {"site": name}}
        if BUG == "requeue-storm":
            while (await self.send("POST", RECORDS, body))[0] != 201:
                pass
        else:
            await self.ask("POST", RECORDS, body, fine=(409,))
        await self.change_directory(lambda data: data.__setitem__(name, "listed"))
        settings = await self.settings_of(name, site["metadata"]["uid"])
        async with LOCK:
            status = {"status": {"port": await self.port(), "settings": settings}}
            await self.ask("PATCH", f"{SITES}/{name}/status", status, type=MERGE)

    async def clean_up(self, name, status):
        await self.change_directory(lambda data: data.pop(name, None))
        if BUG == "orphan" and status.get("settings"):
            await self.ask("DELETE", f"{MAPS}/{status['settings']}", fine=(404,))
        if BUG == "lost-finalizer":
            await self.release(name)
        await self.ask("DELETE", f"{RECORDS}/{name}", fine=(404,))

    async def release(self, name):
        gone = {"metadata": {"finalizers": None}}
        await self.ask("PATCH", f"{SITES}/{name}", gone, fine=(404,), type=MERGE)


# --- on kopf


def on_kopf():
    async def send(method, path, body=None, *, type="application/json"):
        async with aiohttp.ClientSession() as session:
            url, headers = os.environ["DRALAB_SERVER"] + path, {"content-type": type}
            async with session.request(method, url, json=body, headers=headers) as answer:
                return answer.status, await answer.json()

    return Operator(send)


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.persistence.finalizer = FINALIZER


async def handled(doing):
    try:
        await doing
    except (Refused, aiohttp.ClientError, TimeoutError) as error:
        raise kopf.TemporaryError(str(error), delay=5) from error


@kopf.on.resume("example.com", "v1", "sites", backoff=5)
@kopf.on.create("example.com", "v1", "sites", backoff=5)
async def create(name, **_):
    await handled(on_kopf().make(name))


@kopf.on.delete("example.com", "v1", "sites", backoff=5, optional=False)
async def delete(name, status, **_):
    await handled(on_kopf().clean_up(name, status))


async def kopf_main():
    await kopf.operator(standalone=True, namespaces=["default"])


# --- on kr8s


async def kr8s_main():
    api = await kr8s.asyncio.api()

    async def send(method, path, body=None, *, type="application/json"):
        base, _, rest = path.partition("/v1/")
        sent = {"json": body, "headers": {"content-type": type}} if body else {}
        call = api.call_api(method, base=base, url=rest, raise_for_status=False, **sent)
        async with call as answer:
            return answer.status_code, answer.json()

    operator = Operator(send)
    while True:
        try:
            async for _, site in api.watch("sites.example.com"):
                await reconcile(operator, site.raw)
        except (Refused, kr8s.ServerError, kr8s.APITimeoutError, httpx.HTTPError):
            await asyncio.sleep(5)


async def reconcile(operator, seen):
    name = seen["metadata"]["name"]
    site = await operator.ask("GET", f"{SITES}/{name}", fine=(404,))
    if site is None:
        return
    finalizers = site["metadata"].get("finalizers") or []
    if "deletionTimestamp" in site["metadata"]:
        if FINALIZER in finalizers:
            await operator.clean_up(name, site.get("status") or {})
            await operator.release(name)
        return
    if FINALIZER not in finalizers:
        body = {"metadata": {"finalizers": [FINALIZER]}}
        await operator.ask("PATCH", f"{SITES}/{name}", body, type=MERGE)
    await operator.make(name)

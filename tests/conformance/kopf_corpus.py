"""Correct operators for Sites on kopf, each with other means of kopf; each ends as without faults.

Each keeps a ConfigMap for a site, which it applies whole
and by its name, so that doing it once more changes nothing.

None removes things with a handler of `kopf.on.delete` (asyncio_sites.py has one): kopf 1.45.2 adds a
finalizer for it, and never handles a site of which that request was carried out and its answer lost.
"""

import asyncio
import os

import aiohttp
import kopf

SITE = ("example.com", "v1", "sites")
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
SITES = "/apis/example.com/v1/namespaces/default/sites"


async def ask(method, path, body=None, *, type=MERGE, fine=()):
    """Send a request; a refusal is tried again in five seconds."""
    try:
        async with aiohttp.ClientSession() as session:
            url, headers = os.environ["DRALAB_SERVER"] + path, {"content-type": type}
            async with session.request(method, url, json=body, headers=headers) as answer:
                found = await answer.json()
                if answer.status >= 400 and answer.status not in fine:
                    raise kopf.TemporaryError(f"{answer.status} {path}", delay=5)
                return found
    except (aiohttp.ClientError, TimeoutError) as error:
        raise kopf.TemporaryError(str(error), delay=5) from error


async def apply(name, data, *, owner, suffix="-settings"):
    """Make a ConfigMap what it has to be; it goes with its owner."""
    metadata = {"name": f"{name}{suffix}"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    kopf.append_owner_reference(body, owner)
    await ask("PATCH", f"{MAPS}/{name}{suffix}?fieldManager=operator&force=true", body, type=APPLY)


def program(register):
    """Return the main coroutine function of an operator whose handlers `register` adds."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings, **_):
        settings.posting.enabled = False

    @kopf.on.login(registry=registry)
    def login(**given):
        return kopf.login_with_kubeconfig(**given)

    register(registry)

    async def main():
        await kopf.operator(registry=registry, standalone=True, namespaces=["default"])

    return main


def handlers(registry):
    """Create, update and resume are one handler; the owner takes the settings with it."""

    @kopf.on.resume(*SITE, registry=registry, backoff=5)
    @kopf.on.create(*SITE, registry=registry, backoff=5)
    @kopf.on.update(*SITE, registry=registry, backoff=5)
    async def reconcile(name, spec, body, **_):
        await apply(name, {"size": str(spec.get("size", 0))}, owner=body)


def two_handlers(registry):
    """Two handlers of one event, each with its own progress in annotations."""

    @kopf.on.resume(*SITE, registry=registry, backoff=5, id="settings")
    @kopf.on.create(*SITE, registry=registry, backoff=5, id="settings")
    async def settings(name, body, **_):
        await apply(name, {"theme": "plain"}, owner=body)

    @kopf.on.resume(*SITE, registry=registry, backoff=5, id="record")
    @kopf.on.create(*SITE, registry=registry, backoff=5, id="record")
    async def record(name, body, **_):
        await apply(name, {"site": name}, owner=body, suffix="-record")


def event(registry):
    """Every event of a watch is looked at, without any memory."""

    @kopf.on.event(*SITE, registry=registry)
    async def seen(name, body, event, **_):
        if event["type"] == "DELETED" or body["metadata"].get("deletionTimestamp"):
            return
        for _ in range(100):
            try:
                await apply(name, {"seen": "yes"}, owner=body)
            except kopf.TemporaryError:
                await asyncio.sleep(5)
            else:
                return


def timer(registry):
    """What is wanted is applied again each 40 seconds, as long as there is a site."""

    @kopf.timer(*SITE, registry=registry, interval=40, backoff=5)
    async def again(name, body, **_):
        found = await ask("GET", f"{SITES}/{name}", fine=(404,))
        if found.get("kind") == "Site":
            await apply(name, {"again": "yes"}, owner=body)


def daemon(registry):
    """A task for each site applies what is wanted once."""

    @kopf.daemon(*SITE, registry=registry, backoff=5, cancellation_timeout=1)
    async def keep(name, body, stopped, **_):
        await apply(name, {"kept": "yes"}, owner=body)
        await stopped.wait()


def field(registry):
    """One field is followed; the old value does not matter."""
    handlers(registry)

    @kopf.on.field(*SITE, registry=registry, field="metadata.labels", backoff=5)
    async def labels(name, labels, body, **_):
        await apply(name, {"labels": ",".join(sorted(labels))}, owner=body, suffix="-labels")


def status(registry):
    """Writes a status of its own, which it derives from the spec at each start and change."""

    @kopf.on.resume(*SITE, registry=registry, backoff=5)
    @kopf.on.create(*SITE, registry=registry, backoff=5)
    @kopf.on.update(*SITE, registry=registry, backoff=5)
    async def derive(name, spec, body, **_):
        await apply(name, {"size": str(spec.get("size", 0))}, owner=body)
        done = {"status": {"size": spec.get("size", 0)}}
        await ask("PATCH", f"{SITES}/{name}/status", done, fine=(404,))


handlers_main, two_handlers_main = program(handlers), program(two_handlers)
event_main, timer_main, daemon_main = program(event), program(timer), program(daemon)
field_main, status_main = program(field), program(status)

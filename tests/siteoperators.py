"""An operator for Sites that keeps its promises, and five that each break one.

A Site gets a port that no other has, an entry in the ConfigMap `directory`, a ConfigMap with a
generated name for its settings, and a record in the namespace `registry` that a finalizer removes.
"""

import copy

from dralab.api.status import ApiError
from dralab.objects.metadata import finalizers_of, is_deleting, key_of
from dralab.runtime.client import Resource, add_finalizer, amend, drop_finalizer
from dralab.runtime.resources import CONFIG_MAPS

SITES = Resource("example.com", "v1", "sites")
FINALIZER = "example.com/record"
FIRST_PORT = 8000


def ports_are_unique(objects, history):
    """Say which port two sites have."""
    sites = [each for each in objects if each.get("kind") == "Site" and each.get("status")]
    ports = [each["status"]["port"] for each in sites]
    return "".join(f"port {port} is given twice" for port in set(ports) if ports.count(port) > 1)


class Sites:
    """Reconciles Sites, whatever happens in between."""

    def __init__(self, manager):
        self.client = manager.client
        self.engine = manager.engine
        self.sites = manager.cache(SITES)
        self.queue = manager.queue("sites", self.reconcile)
        self.sites.subscribe(self.changed)

    def changed(self, old, new):
        self.queue.add(key_of(new or old))

    def reconcile(self, key):
        try:
            # Not the cache's, which may show a site that is gone since before the last start.
            site = self.client.get(SITES, key.name, key.namespace)
        except ApiError as error:
            if error.reason == "NotFound":
                return
            raise
        if is_deleting(site):
            if FINALIZER in finalizers_of(site):
                self.clean_up(key, site)
            return
        site = amend(self.client, SITES, site, lambda obj: add_finalizer(obj, FINALIZER))
        self.record(key)
        port = self.port_of(site)
        self.enter(key)
        settings = self.settings(key, site)
        self.report(site, port, settings)

    def report(self, site, port, settings):
        wanted = {"port": port, "settings": settings}

        def change(obj):
            if (obj.get("status") or {}) == wanted:
                return False
            obj["status"] = wanted
            return True

        amend(self.client, SITES, site, change, subresource="status")

    def clean_up(self, key, site):
        self.leave(key)
        self.forget_record(key)
        self.release(site)

    def release(self, site):
        amend(self.client, SITES, site, lambda obj: drop_finalizer(obj, FINALIZER))

    # --- the port: no other site may have it

    def port_of(self, site):
        have = (site.get("status") or {}).get("port")
        if have:
            return have
        # Asked of the server, not of the cache: two sites must never get one port.
        sites = self.client.list(SITES).items
        taken = {(each.get("status") or {}).get("port") for each in sites}
        return next(port for port in range(FIRST_PORT, FIRST_PORT + 1000) if port not in taken)

    # --- the directory: one object for all sites, which is not watched

    def enter(self, key):
        def change(obj):
            data = obj.setdefault("data", {})
            if key.name in data:
                return False
            data[key.name] = "listed"
            return True

        self.change_directory(change)

    def leave(self, key):
        self.change_directory(lambda obj: (obj.get("data") or {}).pop(key.name, None) is not None)

    def change_directory(self, change):
        amend(
            self.client, CONFIG_MAPS, self.client.get(CONFIG_MAPS, "directory", "default"), change
        )

    # --- the settings: found again by their label

    def settings(self, key, site):
        found = self.client.list(
            CONFIG_MAPS, key.namespace, label_selector=f"site={key.name}"
        ).items
        if found:
            return found[0]["metadata"]["name"]
        return self.make_settings(key, site)["metadata"]["name"]

    def make_settings(self, key, site):
        owner = {
            "apiVersion": "example.com/v1",
            "kind": "Site",
            "name": key.name,
            "uid": site["metadata"]["uid"],
        }
        body = {
            "metadata": {
                # Of the site's own: a second one would be refused.
                "name": f"{key.name}-settings",
                "labels": {"site": key.name},
                "ownerReferences": [owner],
            },
            "data": {"theme": "plain"},
        }
        return self.client.create(CONFIG_MAPS, body, key.namespace)

    # --- the record: in another namespace, where no owner can reach it

    def record(self, key):
        body = {"metadata": {"name": key.name}, "data": {"site": key.name}}
        try:
            self.client.create(CONFIG_MAPS, body, "registry")
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def forget_record(self, key):
        try:
            self.client.delete(CONFIG_MAPS, key.name, "registry")
        except ApiError as error:
            if error.reason != "NotFound":
                raise


class ReadsOldPorts(Sites):
    """Remembers the ports that are taken, and begins with those that its cache knows at its start."""

    def __init__(self, manager):
        super().__init__(manager)
        self.taken = None

    def reconcile(self, key):
        if self.taken is None:
            self.taken = {(each.get("status") or {}).get("port") for each in self.sites}
        super().reconcile(key)

    def port_of(self, site):
        have = (site.get("status") or {}).get("port")
        if have:
            return have
        ports = range(FIRST_PORT, FIRST_PORT + 1000)
        port = next(port for port in ports if port not in self.taken)
        self.taken.add(port)
        return port


class GivesUpOnConflict(Sites):
    """Takes a conflict for a sign that another write has done what is needed.

    What was done once is taken to last: it is not looked at again.
    """

    def reconcile(self, key):
        site = self.sites.get(key)
        if site is None or is_deleting(site) or not (site.get("status") or {}).get("port"):
            super().reconcile(key)

    def change_directory(self, change):
        directory = copy.deepcopy(self.client.get(CONFIG_MAPS, "directory", "default"))
        if not change(directory):
            return
        try:
            self.client.update(CONFIG_MAPS, directory)
        except ApiError as error:
            if error.reason != "Conflict":
                raise


class LosesItsFinalizer(Sites):
    """Removes the finalizer before what it stands for."""

    def clean_up(self, key, site):
        self.leave(key)
        self.release(site)
        self.forget_record(key)


class StormsBack(Sites):
    """Tries again at once what cannot succeed: the record is there since before a crash."""

    def __init__(self, manager):
        super().__init__(manager)
        self.recorded = set()

    def record(self, key):
        if key in self.recorded:
            return
        body = {"metadata": {"name": key.name}, "data": {"site": key.name}}
        self.client.create(CONFIG_MAPS, body, "registry")
        self.recorded.add(key)

    def reconcile(self, key):
        try:
            super().reconcile(key)
        except ApiError:
            self.queue.add(key)


class LeavesOrphans(Sites):
    """Knows its settings only by the name in its status."""

    def settings(self, key, site):
        name = (site.get("status") or {}).get("settings")
        return name or self.make_settings(key, site)["metadata"]["name"]

    def make_settings(self, key, site):
        body = {
            "metadata": {"generateName": f"{key.name}-", "labels": {"site": key.name}},
            "data": {"theme": "plain"},
        }
        return self.client.create(CONFIG_MAPS, body, key.namespace)

    def clean_up(self, key, site):
        name = (site.get("status") or {}).get("settings")
        if name:
            try:
                self.client.delete(CONFIG_MAPS, name, key.namespace)
            except ApiError as error:
                if error.reason != "NotFound":
                    raise
        super().clean_up(key, site)


PLANTED = {
    "stale read after restart": ReadsOldPorts,
    "no re-check on conflict": GivesUpOnConflict,
    "lost finalizer": LosesItsFinalizer,
    "requeue storm": StormsBack,
    "orphan after crash": LeavesOrphans,
}

"""A small operator: each Site gets a ConfigMap with its settings. It has a bug. Find it."""

from dralab.objects.metadata import is_deleting, key_of
from dralab.runtime.client import Resource, add_finalizer, amend, drop_finalizer
from dralab.runtime.resources import CONFIG_MAPS

SITES = Resource("example.com", "v1", "sites")
FINALIZER = "example.com/settings"


class Sites:
    def __init__(self, manager):
        self.client = manager.client
        self.sites = manager.cache(SITES)
        self.queue = manager.queue("sites", self.reconcile)
        self.sites.subscribe(lambda old, new: self.queue.add(key_of(new or old)))

    def reconcile(self, key):
        site = self.sites.get(key)
        if site is None:
            return
        if is_deleting(site):
            self.delete_settings(key)
            amend(self.client, SITES, site, lambda obj: drop_finalizer(obj, FINALIZER))
            return
        site = amend(self.client, SITES, site, lambda obj: add_finalizer(obj, FINALIZER))
        if not site.get("status", {}).get("settings"):
            body = {
                "metadata": {"generateName": f"{key.name}-", "labels": {"site": key.name}},
                "data": {"theme": site["spec"]["theme"]},
            }
            made = self.client.create(CONFIG_MAPS, body, key.namespace)
            status = {"settings": made["metadata"]["name"]}
            self.client.update(SITES, {**site, "status": status}, subresource="status")

    def delete_settings(self, key):
        selector = f"site={key.name}"
        self.client.delete_collection(CONFIG_MAPS, key.namespace, label_selector=selector)

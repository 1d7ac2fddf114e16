"""The operator without its bugs: settings have a name of their own, and an owner."""

from dralab.api.status import ApiError
from dralab.objects.metadata import is_deleting, key_of, owner_reference
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
            name = f"{key.name}-settings"
            # A name of its own: a second one cannot be made, whatever became of the first answer.
            # An owner: what was made for a site that is gone is collected.
            owner = owner_reference(site, api_version="example.com/v1", kind="Site")
            body = {
                "metadata": {
                    "name": name,
                    "labels": {"site": key.name},
                    "ownerReferences": [owner],
                },
                "data": {"theme": site["spec"]["theme"]},
            }
            try:
                self.client.create(CONFIG_MAPS, body, key.namespace)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

            def report(obj):
                obj["status"] = {"settings": name}
                return True

            amend(self.client, SITES, site, report, subresource="status")

    def delete_settings(self, key):
        selector = f"site={key.name}"
        self.client.delete_collection(CONFIG_MAPS, key.namespace, label_selector=selector)

"""Each namespace has a ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

Sources: kube-controller-manager's serviceaccount and root-ca-certificate-publisher controllers.
"""

from typing import Final

from dralab.api.status import ApiError
from dralab.objects.metadata import NamespacedName, is_deleting
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from dralab.values.json_types import JsonDict

ROOT_CA: Final = "kube-root-ca.crt"
DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class ServiceAccounts:
    """Creates both whenever they are missing; `ca` is the PEM text to publish."""

    def __init__(self, manager: Manager, *, ca: str = "") -> None:
        self.client = manager.client
        self.ca = ca
        self.namespaces = manager.cache(NAMESPACES)
        self.accounts = manager.cache(SERVICE_ACCOUNTS, field_selector="metadata.name=default")
        self.bundles = manager.cache(CONFIG_MAPS, field_selector=f"metadata.name={ROOT_CA}")
        self.queue = manager.queue("serviceaccounts", self.reconcile)
        self.namespaces.subscribe(self._namespace)
        self.accounts.subscribe(self._part)
        self.bundles.subscribe(self._part)

    def _namespace(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.queue.add(new["metadata"]["name"])

    def _part(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if old is not None and (new is None or new.get("data") != old.get("data")):
            self.queue.add(old["metadata"]["namespace"])

    def reconcile(self, name: str) -> int | None:
        """Create what a namespace lacks."""
        namespace = self.namespaces.get(NamespacedName("", name))
        if namespace is None or is_deleting(namespace):
            return None
        # Each on its own: an account that cannot be made does not keep the bundle away.
        failure: ApiError | None = None
        for make in (self._make_account, self._publish):
            try:
                make(name)
            except ApiError as error:
                ends = error.reason == "NotFound" or error.has_cause("NamespaceTerminating")
                if not ends and error.reason != "AlreadyExists":
                    failure = error
        if failure is not None:
            raise failure
        return None

    def _make_account(self, namespace: str) -> None:
        if self.accounts.get(NamespacedName(namespace, "default")) is None:
            account: JsonDict = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": namespace},
            }
            self.accounts.learn(self.client.create(SERVICE_ACCOUNTS, account, namespace))

    def _publish(self, namespace: str) -> None:
        held = self.bundles.get(NamespacedName(namespace, ROOT_CA))
        data = {"ca.crt": self.ca}
        if held is None:
            bundle: JsonDict = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": ROOT_CA,
                    "namespace": namespace,
                    "annotations": {"kubernetes.io/description": DESCRIPTION},
                },
                "data": data,
            }
            self.bundles.learn(self.client.create(CONFIG_MAPS, bundle, namespace))
        elif held.get("data") != data:
            self.bundles.learn(self.client.update(CONFIG_MAPS, {**held, "data": data}))

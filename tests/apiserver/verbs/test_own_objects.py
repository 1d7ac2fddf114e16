"""What a server tells its cluster about itself."""

import base64
import hashlib
import json

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.assembly import make_first_objects, new_resources
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.upkeep.own_objects import (
    RENEWAL,
    OwnAddress,
    OwnObjects,
    authentication_data,
)
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient

SERVICES = Resource("", "v1", "services")
ENDPOINTS = Resource("", "v1", "endpoints")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
ADDRESSES = Resource("networking.k8s.io", "v1", "ipaddresses")
RANGES = Resource("networking.k8s.io", "v1", "servicecidrs")
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
CONFIG_MAPS = Resource("", "v1", "configmaps")


class Lab:
    """A store, and the servers that start on it one after the other."""

    def __init__(self):
        self.store, self.clock = MemoryStore(), ManualClock(1_800_000_000 * 10**9)

    def start(self, host="192.0.2.7", port=6443):
        self.server = ApiServer(
            self.store,
            clock=self.clock,
            randomness=Randomness(1),
            service_network="10.0.0.0/16",
        )
        data = authentication_data(
            client_cas="CA", proxy_cas="PROXY", names={"allowed-names": ["front"]}
        )
        self.server.publish(
            OwnAddress(
                host=host, port=port, machine="m", network="10.0.0.0/16", authentication=data
            )
        )
        self.client = LocalClient(self.server.resources, self.server.hub)
        return self.client

    def names(self, resource):
        return [item["metadata"]["name"] for item in self.client.list(resource, "").items]


@pytest.fixture
def lab():
    return Lab()


def test_the_service_kubernetes_leads_to_the_server(lab):
    client = lab.start()
    service = client.get(SERVICES, "kubernetes", "default")
    assert service["spec"]["clusterIP"] == "10.0.0.1"
    assert service["spec"]["ports"][0]["targetPort"] == 6443
    (subset,) = client.get(ENDPOINTS, "kubernetes", "default")["subsets"]
    assert subset["addresses"] == [{"ip": "192.0.2.7"}]
    assert client.get(SLICES, "kubernetes", "default")["addressType"] == "IPv4"
    assert client.get(RANGES, "kubernetes")["status"]["conditions"][0]["status"] == "True"


def test_a_server_on_the_loopback_has_no_endpoints(lab):
    client = lab.start(host="127.0.0.1")
    assert client.get(SERVICES, "kubernetes", "default")
    assert lab.names(ENDPOINTS) == lab.names(SLICES) == []


def test_a_server_that_starts_again_corrects_its_port_and_writes_nothing_else(lab):
    first = lab.start().get(SERVICES, "kubernetes", "default")
    lab.start(port=6444)
    again = lab.client.get(SERVICES, "kubernetes", "default")
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert again["spec"]["ports"][0]["targetPort"] == 6444
    revision = lab.store.revision
    lab.start(port=6444)
    assert lab.store.revision == revision


def test_each_address_of_a_service_is_an_object(lab):
    client = lab.start()
    made = client.create(
        SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}, "default"
    )
    address = made["spec"]["clusterIP"]
    assert lab.names(ADDRESSES) == sorted(["10.0.0.1", address])
    parent = client.get(ADDRESSES, address)["spec"]["parentRef"]
    assert parent == {"resource": "services", "namespace": "default", "name": "a"}
    client.delete(SERVICES, "a", "default")
    assert lab.names(ADDRESSES) == ["10.0.0.1"]


def test_the_lease_is_renewed_while_the_server_runs(lab):
    client = lab.start()
    (name,) = [name for name in lab.names(LEASES) if name.startswith("apiserver-")]
    before = client.get(LEASES, name, "kube-system")["spec"]["renewTime"]
    lab.server.tick()
    assert client.get(LEASES, name, "kube-system")["spec"]["renewTime"] == before
    lab.clock.advance(RENEWAL)
    lab.server.tick()
    assert client.get(LEASES, name, "kube-system")["spec"]["renewTime"] > before


def test_aggregated_servers_find_whom_to_trust(lab):
    name = "extension-apiserver-authentication"
    data = lab.start().get(CONFIG_MAPS, name, "kube-system")["data"]
    assert data["client-ca-file"] == "CA"
    assert json.loads(data["requestheader-allowed-names"]) == ["front"]


def definition(*versions):
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
                for version in versions
            ],
        },
    }


def test_each_version_that_the_server_answers_has_an_apiservice(lab):
    client = lab.start()
    names = lab.names(API_SERVICES)
    assert {"v1.", "v1.apps", "v2.autoscaling"} <= set(names)
    assert "v1.apiregistration.k8s.io" not in names
    apps = client.get(API_SERVICES, "v1.apps")
    assert apps["spec"]["groupPriorityMinimum"] == 17800
    assert apps["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
    (condition,) = apps["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Local")


def test_apiservices_of_custom_resources_come_and_go_with_their_definition(lab):
    client = lab.start()
    client.create(DEFINITIONS, definition("v1", "v1beta1"))
    client.delete(API_SERVICES, "v1.example.com")  # the server makes it again
    custom = client.get(API_SERVICES, "v1.example.com")
    assert custom["spec"]["groupPriorityMinimum"] == 1000
    assert "v1beta1.example.com" in lab.names(API_SERVICES)
    client.delete(DEFINITIONS, "widgets.example.com")
    assert not [name for name in lab.names(API_SERVICES) if "example.com" in name]


def test_an_apiservice_of_a_user_stays(lab):
    client = lab.start()
    spec = {"group": "example.com", "version": "v1"}
    spec |= {"groupPriorityMinimum": 7, "versionPriority": 7}
    client.create(API_SERVICES, {"metadata": {"name": "v1.example.com"}, "spec": spec})
    client.create(DEFINITIONS, definition("v1"))
    client.delete(DEFINITIONS, "widgets.example.com")
    kept = client.get(API_SERVICES, "v1.example.com")
    assert kept["spec"]["versionPriority"] == 7
    assert kept["status"]["conditions"][0]["reason"] == "Local"


def test_what_is_not_served_any_more_has_no_apiservice_after_a_new_start(lab):
    lab.start().create(DEFINITIONS, definition("v1"))
    stale = lab.client.get(API_SERVICES, "v1.example.com")
    other = {**stale["spec"], "group": "gone.example.com"}
    labels = stale["metadata"]["labels"]
    lab.client.create(
        API_SERVICES,
        {"metadata": {"name": "v1.gone.example.com", "labels": labels}, "spec": other},
    )
    lab.start()
    assert "v1.gone.example.com" not in lab.names(API_SERVICES)
    assert "v1.example.com" in lab.names(API_SERVICES)


def test_a_server_is_called_after_its_machine(lab):
    """As kube-apiserver: 16 bytes of a hash, in the letters of base32."""
    lab.start()
    digest = base64.b32encode(hashlib.sha256(b"m").digest()[:16]).decode().rstrip("=").lower()
    name = f"apiserver-{digest}"
    assert [each for each in lab.names(LEASES) if each.startswith("apiserver-")] == [name]
    assert len(digest) == 26
    spec = lab.client.get(LEASES, name, "kube-system")["spec"]
    assert spec["leaseDurationSeconds"] == 3600


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::0:1", "2001:db8::1"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("0.0.0.0", ""),  # noqa: S104 - it is refused
        ("::", ""),
        ("localhost", ""),
    ],
)
def test_only_an_address_that_others_reach_is_an_endpoint(host, endpoint):
    assert OwnAddress(host=host, port=1, machine="m", network="10.0.0.0/16").endpoint == endpoint


@pytest.mark.parametrize(
    ("reason", "fails"),
    [
        ("AlreadyExists", False),
        ("Conflict", False),
        ("NotFound", False),
        ("Invalid", False),
        ("Forbidden", True),
        ("InternalError", True),
    ],
)
def test_a_server_starts_though_another_writes_the_same(lab, monkeypatch, reason, fails):
    def create(*_, **__):
        raise ApiError(reason, "said by a test")

    monkeypatch.setattr(Resources, "create", create)
    own = OwnObjects(
        new_resources(lab.store, lab.clock, Randomness(1), bootstrap=False),
        OwnAddress(host="192.0.2.7", port=1, machine="m", network="10.0.0.0/16"),
    )
    if fails:
        with pytest.raises(ApiError, match="said by a test"):
            own.publish()
    else:
        own.publish()


class Racing(MemoryStore):
    """A store in which another server has just made what was not there at the look before."""

    def __init__(self, *, shared):
        super().__init__()
        self.shared = shared
        self.blind = 0

    def get(self, key):
        if self.blind and key.resource == "namespaces":
            self.blind -= 1
            return None
        return super().get(key)


@pytest.mark.parametrize("shared", [True, False])
def test_servers_of_one_store_may_start_together(shared):
    store = Racing(shared=shared)
    resources = new_resources(store, ManualClock(1), Randomness(1), bootstrap=False)
    make_first_objects(resources)
    before = store.revision
    store.blind = 1
    if shared:
        make_first_objects(resources)
    else:
        with pytest.raises(ApiError, match='namespaces "default" already exists'):
            make_first_objects(resources)
    assert store.revision == before

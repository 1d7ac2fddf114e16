"""Who may change which part of a claim's status: Kubernetes' DRA suite, and a real server's words.

test/e2e/dra/dra.go (1.36), and the answers of a kube-apiserver 1.36.2 to the same requests.
"""

import re

import pytest

from dralab.apiserver.access.users import User
from offices import account, rule

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
STATUS = f"{CLAIMS}/c/status"
DRIVER = "d.example.com"
GROUP = "resource.k8s.io"
NODE_NAME = "authentication.kubernetes.io/node-name"
ON_NODE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
DEVICE = {"driver": DRIVER, "pool": "p", "device": "e"}
ALLOCATION = {
    "devices": {"results": [{"request": "r", **DEVICE}]},
    "nodeSelector": {"nodeSelectorTerms": [ON_NODE]},
}
ROBOT = "system:serviceaccount:default:robot"


def robot(node=""):
    """The account of a plugin, on a node where one is named."""
    return User(
        name=ROBOT,
        groups=("system:authenticated",),
        extra={NODE_NAME: (node,)} if node else {},
    )


@pytest.fixture
def claims(office):
    """A claim that is allocated on node n1; `robot` may write its status, and no more."""
    request = {"name": "r", "exactly": {"deviceClassName": "x"}}
    spec = {"devices": {"requests": [request]}}
    office.made(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
    office.role("status", rule("update,patch", "resourceclaims/status", GROUP))
    office.bind("status", "status", account("robot", "default"))
    patch(office, {"allocation": ALLOCATION})
    return office


def patch(office, status, **who):
    merge = "application/merge-patch+json"
    return office.ask("PATCH", STATUS, {"status": status}, type=merge, **who)


def grant(office, verbs, part, *names):
    name = re.sub("[:,]", "-", f"{part}-{verbs}")
    office.role(name, rule(verbs, f"resourceclaims/{part}", GROUP, names))
    office.bind(name, name, account("robot", "default"))


def refused(answer, field, *words):
    code, status = answer
    assert code == 422, status
    [cause] = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", field)
    for each in words:
        assert each in cause["message"]


def test_the_allocation_and_its_users_need_a_permission_of_their_own(claims):
    words = (
        'Forbidden: changing status.allocation or status.reservedFor requires resource="resource'
        'claims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: '
        f'User "{ROBOT}" cannot patch resource "resourceclaims/binding" in API group '
        '"resource.k8s.io" at the cluster scope'
    )
    refused(patch(claims, {"allocation": None}, user=robot()), "status.allocation", words)
    users = [{"resource": "pods", "name": "a", "uid": "1"}]
    refused(patch(claims, {"reservedFor": users}, user=robot()), "status.allocation", words)
    grant(claims, "patch", "binding")
    assert patch(claims, {"reservedFor": users}, user=robot())[0] == 200
    _, held = claims.ask("GET", f"{CLAIMS}/c")
    held["status"]["reservedFor"] = []
    # Another verb is another permission.
    refused(claims.ask("PUT", STATUS, held, robot()), "status.allocation", 'verb="update"')
    assert claims.ask("PUT", STATUS, held)[0] == 200


def test_must_be_impossible_for_a_node_service_account_to_update_the_non_node_status_devices(
    claims,
):
    grant(claims, "associated-node:patch,associated-node:update", "driver", DRIVER)
    words = (
        'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:'
        f'patch]" permission: resourceclaims.resource.k8s.io "{DRIVER}" is forbidden: User '
        f'"{ROBOT}" cannot arbitrary-node:patch resource "resourceclaims/driver" in API group '
        '"resource.k8s.io" in the namespace "default"'
    )
    for elsewhere in (robot(), robot("n2")):
        refused(patch(claims, {"devices": [DEVICE]}, user=elsewhere), "status.devices", words)


def test_must_be_possible_for_a_node_service_account_to_update_the_node_status_devices(claims):
    there = robot("n1")
    verbs = 'verb="[associated-node:patch arbitrary-node:patch]"'
    refused(patch(claims, {"devices": [DEVICE]}, user=there), "status.devices", verbs)
    grant(claims, "associated-node:patch", "driver", DRIVER)
    for data in ({"foo": "bar"}, {"bar": "foo"}):
        wanted = [{**DEVICE, "data": data}]
        code, found = patch(claims, {"devices": wanted}, user=there)
        assert (code, found["status"]["devices"]) == (200, wanted)
    assert patch(claims, {"devices": []}, user=there)[0] == 200


def test_must_be_possible_for_a_control_plane_service_account_to_update_the_status_devices(claims):
    refused(patch(claims, {"devices": [DEVICE]}, user=robot()), "status.devices", "is forbidden")
    grant(claims, "arbitrary-node:patch", "driver", DRIVER)
    assert patch(claims, {"devices": [DEVICE]}, user=robot())[0] == 200
    _, held = claims.ask("GET", f"{CLAIMS}/c")
    held["status"]["devices"] = [{**DEVICE, "data": {"foo": "bar"}}]
    refused(claims.ask("PUT", STATUS, held, robot()), "status.devices", "arbitrary-node:update")
    grant(claims, "arbitrary-node:update", "driver")
    assert claims.ask("PUT", STATUS, held, robot())[0] == 200


def test_each_driver_is_asked_for_by_its_name(claims):
    grant(claims, "arbitrary-node:patch", "driver", "other.example.com")
    answer = patch(claims, {"devices": [DEVICE]}, user=robot())
    refused(answer, "status.devices", f'resourceclaims.resource.k8s.io "{DRIVER}" is forbidden')


@pytest.mark.parametrize(
    "selector",
    [
        None,
        {"nodeSelectorTerms": [ON_NODE, ON_NODE]},
        {"nodeSelectorTerms": [{"matchFields": [{**ON_NODE["matchFields"][0], "values": ["n2"]}]}]},
    ],
)
def test_an_allocation_that_does_not_name_the_node_alone_is_not_its_own(claims, selector):
    grant(claims, "associated-node:patch", "driver")
    assert patch(claims, {"allocation": None})[0] == 200
    assert patch(claims, {"allocation": {**ALLOCATION, "nodeSelector": selector}})[0] == 200
    answer = patch(claims, {"devices": [DEVICE]}, user=robot("n1"))
    refused(answer, "status.devices", 'verb="[arbitrary-node:patch]"')


def test_writing_back_what_is_there_needs_nothing_more(claims):
    assert patch(claims, {"devices": [DEVICE]})[0] == 200
    _, held = claims.ask("GET", f"{CLAIMS}/c")
    assert claims.ask("PUT", STATUS, held, robot())[0] == 200

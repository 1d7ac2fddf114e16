"""Who may do what, beside a real kube-apiserver: users by verbs by kinds, in and beside a namespace."""

import json
import ssl
from contextlib import closing
from http.client import HTTPSConnection

import pytest
from benchmarks import kube

from dralab.cluster import Cluster, Options
from etcds import Etcd
from waiting import until

pytestmark = pytest.mark.conformance

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SPACE = "team"
USERS = {
    "anonymous": ("system:anonymous", ["system:unauthenticated"]),
    "nobody": ("jane", ["system:authenticated"]),
    "administrator": ("root", ["system:masters", "system:authenticated"]),
    "cluster role": ("chief", ["system:authenticated"]),
    "admin of the namespace": ("ann", ["system:authenticated"]),
    "edits the namespace": ("ed", ["system:authenticated"]),
    "views the namespace": ("vi", ["viewers", "system:authenticated"]),
    "own role": (
        f"system:serviceaccount:{SPACE}:robot",
        ["system:serviceaccounts", f"system:serviceaccounts:{SPACE}", "system:authenticated"],
    ),
    "node": ("system:node:n1", ["system:nodes", "system:authenticated"]),
    "scheduler": ("system:kube-scheduler", ["system:authenticated"]),
    "controllers": ("system:kube-controller-manager", ["system:authenticated"]),
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
MORE = [
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
    ("", "users", "impersonate"),
    ("", "groups", "impersonate"),
    ("authentication.k8s.io", "userextras/scopes", "impersonate"),
    ("certificates.k8s.io", "signers", "approve"),
    ("resource.k8s.io", "deviceclasses", "use"),
]
PATHS = ("/api", "/apis/apps", "/healthz", "/metrics", "/openapi/v2", "/version", "/logs/x", "/")


def binding(kind, role, name, subject):
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", **subject}],
    }


def user(name):
    return {"kind": "User", "name": name}


OWN = [
    {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get", "watch"]},
    {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["list", "patch"]},
    {"apiGroups": [""], "resources": ["*/status"], "verbs": ["update"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["*"]},
]
OBJECTS = [
    ("/api/v1/namespaces", {"metadata": {"name": SPACE}}),
    (f"{RBAC}/namespaces/{SPACE}/roles", {"metadata": {"name": "own"}, "rules": OWN}),
    (
        f"{RBAC}/clusterrolebindings",
        binding("ClusterRole", "cluster-admin", "chief", user("chief")),
    ),
    *(
        (f"{RBAC}/namespaces/{SPACE}/rolebindings", each)
        for each in (
            binding("ClusterRole", "admin", "ann", user("ann")),
            binding("ClusterRole", "edit", "ed", user("ed")),
            binding("ClusterRole", "view", "vi", {"kind": "Group", "name": "viewers"}),
            binding(
                "Role",
                "own",
                "robot",
                {"kind": "ServiceAccount", "apiGroup": "", "name": "robot", "namespace": SPACE},
            ),
        )
    ),
]


class Asking:
    """One connection to a server, as its administrator."""

    def __init__(self, url, token):
        trusting = ssl._create_unverified_context()  # noqa: S323 - its own, on loopback
        self.line = HTTPSConnection(url.removeprefix("https://"), context=trusting)
        self.token = token

    def ask(self, method, path, body=None, **headers):
        head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        self.line.request(method, path, text, {**head, **headers})
        answer = self.line.getresponse()
        found = answer.read()
        return answer.status, json.loads(found) if found[:1] == b"{" else found

    def resources(self):
        """All resources with their groups, as discovery lists them."""
        found = set()
        groups = self.ask("GET", "/apis")[1]["groups"]
        places = [("", "/api/v1")]
        places += [
            (group["name"], f"/apis/{version['groupVersion']}")
            for group in groups
            for version in group["versions"]
        ]
        for group, path in places:
            status, listed = self.ask("GET", path)
            if status == 200:
                found |= {(group, each["name"]) for each in listed["resources"]}
        return found

    def may(self, who, **asked):
        """What an access review says: whether, and why."""
        name, groups = USERS[who]
        review = {"spec": {"user": name, "groups": groups, **asked}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        status, found = self.ask("POST", path, review)
        assert status == 201, found
        return found["status"]["allowed"]


def prepare(asking):
    for path, body in OBJECTS:
        status, found = asking.ask("POST", path, body)
        assert status == 201, found


def matrix(asking, resources):
    """Return what each user may do."""
    asking.line.close()  # the server has closed it if the other one took two minutes
    found = {}
    asked = [(group, resource, verb) for group, resource in resources for verb in VERBS]
    for who in USERS:
        for group, resource, verb in [*asked, *MORE]:
            name, _, sub = resource.partition("/")
            for space in ("", SPACE, "kube-system"):
                what = {"group": group, "resource": name, "subresource": sub, "verb": verb}
                for named in ("", "p") if (group, name) == ("", "pods") else ("",):
                    place = {**what, "namespace": space, "name": named}
                    key = (who, verb, group, resource, space, named)
                    found[key] = asking.may(who, resourceAttributes=place)
        for path in PATHS:
            place = {"path": path, "verb": "get"}
            found[who, "get", path] = asking.may(who, nonResourceAttributes=place)
    return found


def test_everybody_may_do_what_a_real_server_lets_them_do(tmp_path):
    program = kube.program()
    if program is None:
        pytest.skip("no kube-apiserver: neither DRALAB_KUBE_APISERVER nor the PATH has one")
    with Etcd(tmp_path) as etcd, Cluster(Options(tls=True, authorization=["RBAC"])) as cluster:
        real = kube.KubeApiserver(program, tmp_path / "kube", etcd.url.replace("etcd:", "http:"))
        try:
            theirs, ours = Asking(real.url, kube.TOKEN), Asking(cluster.url, cluster.token)
            with closing(theirs.line), closing(ours.line):
                until(lambda: theirs.ask("GET", "/readyz")[0] == 200)  # and all groups are listed
                both = sorted(theirs.resources() & ours.resources())
                assert len(both) > 100
                for asking in (theirs, ours):
                    prepare(asking)
                expected, found = matrix(theirs, both), matrix(ours, both)
        finally:
            real.stop()
    assert len(expected) > 20_000
    assert {key: found[key] for key in found if found[key] != expected[key]} == {}

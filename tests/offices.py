"""A server that asks who may do what, and the small language of roles and bindings."""

import json

from dralab.apiserver.access.users import ADMIN, AUTHENTICATED, User
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

RBAC = "/apis/rbac.authorization.k8s.io/v1"
START = 1_800_000_000 * 10**9


class Office:
    """A server, and what users are told that ask it; without a user the administrator asks."""

    def __init__(self, modes=("RBAC",), store=None):
        self.store = store or MemoryStore()
        self.server = ApiServer(
            self.store,
            clock=ManualClock(START),
            randomness=Randomness(1),
            authorization=modes,
        )

    def ask(self, method, path, body=None, user=ADMIN, type="application/json"):
        """Return the status and the document of an answer."""
        path, _, query = path.partition("?")
        request = HttpRequest(
            method=method,
            path=path,
            query=query,
            headers={"content-type": type} if body is not None else {},
            body=b"" if body is None else json.dumps(body).encode(),
            user=user if isinstance(user, User) else person(user),
        )
        answer = self.server.handle(request)
        content = getattr(answer, "content", b"{}")
        return answer.status, json.loads(content) if content[:1] == b"{" else content

    def refusal(self, method, path, body=None, user=ADMIN, **more):
        """Return the message of a request that is forbidden."""
        status, found = self.ask(method, path, body, user, **more)
        assert status == 403, (status, str(found)[:500])
        assert found["reason"] == "Forbidden"
        return found["message"]

    def made(self, path, body, user=ADMIN):
        """Return an object that was created."""
        status, found = self.ask("POST", path, body, user)
        assert status == 201, str(found)[:500]
        return found

    def role(self, name, *rules, namespace="", **metadata):
        """Make a Role, or a ClusterRole where there is no namespace."""
        where = f"{RBAC}/namespaces/{namespace}/roles" if namespace else f"{RBAC}/clusterroles"
        return self.made(where, {"metadata": {"name": name, **metadata}, "rules": list(rules)})

    def bind(self, name, role, *subjects, namespace=""):
        """Make a binding: `role` is the name of a ClusterRole, or `Role/name`."""
        where = (
            f"{RBAC}/namespaces/{namespace}/rolebindings"
            if namespace
            else f"{RBAC}/clusterrolebindings"
        )
        kind, _, role_name = role.rpartition("/")
        ref = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind or "ClusterRole",
            "name": role_name,
        }
        body = {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects)}
        return self.made(where, body)


def person(name, *groups, **more):
    return User(name=name, groups=(*groups, AUTHENTICATED), **more)


def user(name):
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def group(name):
    return {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def account(name, namespace):
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def rule(verbs, resources, groups="", names=()):
    """A rule of comma-separated words; a group is `core` where it would be empty."""
    found = {
        "verbs": verbs.split(","),
        "apiGroups": ["" if each == "core" else each for each in groups.split(",")],
        "resources": resources.split(","),
    }
    return {**found, "resourceNames": list(names)} if names else found


def paths(verbs, urls):
    return {"verbs": verbs.split(","), "nonResourceURLs": urls.split(",")}

"""The user of a request, as used by authorization, admission and audit.

Proving it is left to authentication. Source of the names:
k8s.io/apiserver `authentication/user`, `authentication/serviceaccount`.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

MASTERS: Final = "system:masters"  # they may do everything, whatever the roles say
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
NOTHING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. `extra` is what an authenticator adds: keys are lower case, as in headers.

    >>> User(name="jane", groups=("team-a",)).is_superuser
    False
    """

    name: str = "admin"
    groups: tuple[str, ...] = (MASTERS, AUTHENTICATED)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING, hash=False)

    @property
    def is_superuser(self) -> bool:
        """Whether the user may do everything, without asking an authorizer."""
        return MASTERS in self.groups

    @property
    def info(self) -> JsonDict:
        """The user as UserInfo of authentication.k8s.io/v1."""
        found: JsonDict = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(values) for key, values in sorted(self.extra.items())}
        return found


ADMIN: Final = User(uid="admin")
ANONYMOUS: Final = User(name="system:anonymous", groups=(UNAUTHENTICATED,))


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account.

    >>> service_account_name("default", "robot")
    'system:serviceaccount:default:robot'
    """
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return a service account as a user, with the groups of every service account."""
    groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED)
    return User(name=service_account_name(namespace, name), groups=groups, uid=uid)


def node_user(name: str) -> User:
    """Return the user of a node's kubelet.

    >>> node_user("node-0").name
    'system:node:node-0'
    """
    return User(name=f"{NODE_PREFIX}{name}", groups=(NODES, AUTHENTICATED))


def user_named(name: str) -> User:
    """Return a user with the groups implied by the name.

    >>> user_named("system:serviceaccount:kube-system:job-controller").groups[1]
    'system:serviceaccounts:kube-system'
    """
    if name.startswith(NODE_PREFIX):
        return node_user(name.removeprefix(NODE_PREFIX))
    if name.startswith(SERVICE_ACCOUNT_PREFIX):
        return service_account(*name.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":"))
    return User(name=name, groups=(AUTHENTICATED,))


def node_of(user: User) -> str | None:
    """Return the node of a kubelet's user, or None; empty if the name has no node.

    >>> node_of(node_user("node-0")), node_of(User(name="system:node:node-0", groups=()))
    ('node-0', None)
    """
    if NODES not in user.groups or not user.name.startswith(NODE_PREFIX):
        return None
    return user.name.removeprefix(NODE_PREFIX)

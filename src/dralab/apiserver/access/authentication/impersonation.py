"""Impersonation with Impersonate-User, -Group, -Uid and -Extra-*: `kubectl --as`.

Whoever impersonates needs rights for it: since 1.36 `impersonate:MODE` for the user, with
`impersonate-on:MODE:VERB` for what is done as that user; else `impersonate`, for everything.

Source: k8s.io/apiserver `endpoints/filters/impersonation`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from dralab.api.core.addresses import domain_path_errors
from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.heads import Head, values
from dralab.apiserver.access.authorization.attributes import (
    Attributes,
    Authorizer,
    Decision,
    forbidden,
)
from dralab.apiserver.access.users import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_PREFIX,
    NODES,
    SERVICE_ACCOUNT_PREFIX,
    UNAUTHENTICATED,
    User,
    service_account,
)
from dralab.values.go_text import go_quoted
from dralab.values.names import subdomain_problems
from dralab.values.records import dataclass

SOUGHT: Final = "\nimpersonate-"
USER: Final = "impersonate-user"
GROUP: Final = "impersonate-group"
UID: Final = "impersonate-uid"
EXTRA: Final = "impersonate-extra-"
VERB: Final = "impersonate"
API_GROUP: Final = "authentication.k8s.io"
MANY: Final = 4  # groups, or extra values, that may be allowed all at once
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
NODE_KEYS: Final = "authentication.kubernetes.io/associated-node-keys"
ASSOCIATED: Final = "associated-node"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The user that the headers name, as they name it."""

    name: str
    uid: str
    groups: Sequence[str]
    extra: Mapping[str, Sequence[str]]

    @property
    def is_name_only(self) -> bool:
        """Whether nothing but a name is given."""
        return not (self.uid or self.groups or self.extra)

    @property
    def node(self) -> str:
        """The node of the user name; empty if it is not a node's."""
        node = self.name.removeprefix(NODE_PREFIX)
        return node if node != self.name and not subdomain_problems(node) else ""

    @property
    def account(self) -> tuple[str, str] | None:
        """The namespace and name of the service account behind the name."""
        if not self.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return None
        namespace, colon, bare = self.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        return (namespace, bare) if colon and namespace and bare and ":" not in bare else None


def is_wanted(head: Head) -> bool:
    """Return whether a request is to be made as another user."""
    # One search in all names takes a third of the time of a loop, for every request. No name of a
    # header has a line break in it.
    return SOUGHT in "\n" + "\n".join(head.headers)


def impersonated(
    head: Head, user: User, authorizer: Authorizer | None, asked: Callable[[], Attributes]
) -> tuple[User, str] | None:
    """Return the impersonated user, and the permission that allows it if that is constrained.

    None if it names no user. `asked` is what it wants to do. Without an authorizer every user may
    impersonate, as a superuser always may. ApiError.
    """
    wanted = _wanted(head)
    if not wanted.name:
        if wanted.is_name_only:
            return None
        raise ApiError.bad_request(f"requested {_shown(wanted)} without impersonating a user name")
    may = authorizer if not user.is_superuser else None
    first: ApiError | None = None
    for mode in _modes(wanted, user):
        try:
            return _in_mode(mode, wanted, user, may, asked()), f"{VERB}:{mode}"
        except ApiError as error:
            first = first or error
    try:
        for attributes in _rights(wanted, user, VERB, ""):
            _check(may, attributes)
    except ApiError as error:
        raise (first or error) from None
    return _as(wanted, tuple(wanted.groups) or _groups_of(wanted)), ""


def _wanted(head: Head) -> _Wanted:
    extra: dict[str, list[str]] = {}
    for header in head.headers:
        if header.startswith(EXTRA):
            key = unquote(header.removeprefix(EXTRA)).lower()
            extra.setdefault(key, []).extend(values(head, header))
    headers = head.headers
    groups = tuple(values(head, GROUP))
    return _Wanted(headers.get(USER, ""), headers.get(UID, ""), groups, extra)


def _modes(wanted: _Wanted, user: User) -> Iterator[str]:
    """Yield the modes of constrained impersonation that are meant for such a user."""
    if node := wanted.node:
        if wanted.is_name_only:
            if user.name.startswith(SERVICE_ACCOUNT_PREFIX) and user.extra.get(NODE_NAME) == (
                node,
            ):
                yield ASSOCIATED
            yield "arbitrary-node"
    elif wanted.account is not None:
        if wanted.is_name_only:
            yield "serviceaccount"
    else:
        yield "user-info"


def _in_mode(
    mode: str, wanted: _Wanted, user: User, authorizer: Authorizer | None, asked: Attributes
) -> User:
    """Return the user as a mode has it. ApiError."""
    if mode == ASSOCIATED:
        # The right is that of the account, on whatever node one of its pods is.
        keys = {NODE_KEYS: tuple(sorted(user.extra))}
        user = replace(user, extra=keys)
    verb = f"{VERB}:{mode}"
    _check(authorizer, replace(asked, user=user, verb=f"{VERB}-on:{mode}:{asked.verb}"))
    _check_constrained(wanted, user, verb)
    for attributes in _rights(wanted, user, verb, API_GROUP, authorizer):
        _check(authorizer, attributes)
    if wanted.node:
        return _as(wanted, (NODES,))
    return _as(wanted, tuple(wanted.groups) or _groups_of(wanted))


def _check(authorizer: Authorizer | None, attributes: Attributes) -> None:
    if authorizer is not None:
        decision = authorizer.authorize(attributes)
        if not decision.allowed:
            raise forbidden(attributes, decision)


def _check_constrained(wanted: _Wanted, user: User, verb: str) -> None:
    """Refuse what only the older right `impersonate` allows. ApiError."""
    why, resource, name, group = "", "groups", "", API_GROUP
    if "" in wanted.groups:
        why = "impersonating the empty string group is not allowed"
    elif MASTERS in wanted.groups:
        why, name = "impersonating the system:masters group is not allowed", MASTERS
    else:
        resource = "userextras"
        why = next(filter(None, map(_problem_of_extra, wanted.extra.items())), "")
    if why:
        attributes = Attributes(
            user=user, verb=verb, group=group, version="v1", resource=resource, name=name
        )
        raise forbidden(attributes, Decision("no opinion", why))


def _problem_of_extra(item: tuple[str, Sequence[str]]) -> str:
    key, given = item
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    if problems := domain_path_errors(key, "extra.key"):
        return f"impersonating an invalid key in extra is not allowed: {problems[0]}"
    return "impersonating the empty string value in extra is not allowed" if "" in given else ""


def _rights(
    wanted: _Wanted, user: User, verb: str, group: str, authorizer: Authorizer | None = None
) -> Iterator[Attributes]:
    """Yield everything that the sender has to be allowed to do.

    With an authorizer, the right to all of many groups or values stands for that to each.
    """
    version = "v1"
    named = Attributes(user=user, verb=verb, group=group, version=version, resource="users")
    if wanted.account is not None:
        namespace, bare = wanted.account
        yield replace(named, resource="serviceaccounts", namespace=namespace, name=bare)
    elif group and wanted.node:
        # Whatever the node: the mode has checked that it is the account's own.
        name = "*" if verb.endswith(ASSOCIATED) else wanted.node
        yield replace(named, resource="nodes", name=name)
    else:
        yield replace(named, name=wanted.name)
    about = replace(named, group=API_GROUP)
    if wanted.uid:
        yield replace(about, resource="uids", name=wanted.uid)
    groups = replace(named, resource="groups")
    if not _all_allowed(authorizer, replace(groups, name="*"), len(wanted.groups)):
        for name in wanted.groups:
            yield replace(groups, name=name)
    extra = replace(about, resource="userextras")
    count = max(len(wanted.extra), sum(map(len, wanted.extra.values())))
    if not _all_allowed(authorizer, replace(extra, subresource="*", name="*"), count):
        for key, given in wanted.extra.items():
            for value in given:
                yield replace(extra, subresource=key, name=value)


def _all_allowed(authorizer: Authorizer | None, attributes: Attributes, count: int) -> bool:
    return authorizer is not None and count >= MANY and authorizer.authorize(attributes).allowed


def _groups_of(wanted: _Wanted) -> tuple[str, ...]:
    """Return the groups of a service account."""
    return service_account(*wanted.account).groups if wanted.account is not None else ()


def _as(wanted: _Wanted, groups: tuple[str, ...]) -> User:
    standing = UNAUTHENTICATED if wanted.name == ANONYMOUS.name else AUTHENTICATED
    if standing not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, standing)
    extra = {key: tuple(given) for key, given in wanted.extra.items()}
    return User(
        name=wanted.name, groups=groups, uid=wanted.uid, **({"extra": extra} if extra else {})
    )


def _shown(wanted: _Wanted) -> str:
    """Return the user as Go prints the value of a type."""

    def texts(given: Sequence[str]) -> str:
        return f"[]string{{{', '.join(map(go_quoted, given))}}}"

    groups = texts(wanted.groups) if wanted.groups else "[]string(nil)"
    extra = "map[string][]string(nil)"
    if wanted.extra:
        items = sorted(wanted.extra.items())
        pairs = ", ".join(f"{go_quoted(key)}:{texts(given)}" for key, given in items)
        extra = f"map[string][]string{{{pairs}}}"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{go_quoted(wanted.uid)}, Groups:{groups}, Extra:{extra}}}'
    )

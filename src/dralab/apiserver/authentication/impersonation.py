"""Impersonation with Impersonate-User, -Group, -Uid and -Extra-*: `kubectl --as`.

Source: k8s.io/apiserver `endpoints/filters/impersonation`.
"""

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from dralab.api.status import ApiError
from dralab.apiserver.authentication.heads import Head, values
from dralab.apiserver.authorization.attributes import Attributes, Authorizer, forbidden
from dralab.apiserver.users import (
    ANONYMOUS,
    AUTHENTICATED,
    SERVICE_ACCOUNT_PREFIX,
    UNAUTHENTICATED,
    User,
    service_account,
)

SOUGHT: Final = "\nimpersonate-"
USER: Final = "impersonate-user"
GROUP: Final = "impersonate-group"
UID: Final = "impersonate-uid"
EXTRA: Final = "impersonate-extra-"
VERB: Final = "impersonate"
API_GROUP: Final = "authentication.k8s.io"


def is_wanted(head: Head) -> bool:
    """Return whether a request is to be made as another user."""
    # One search in all names takes a third of the time of a loop, for every request. No name of a
    # header has a line break in it.
    return SOUGHT in "\n" + "\n".join(head.headers)


def impersonated(head: Head, user: User, authorizer: Authorizer | None) -> User:
    """Return the impersonated user of a request, if its sender may. ApiError.

    Without an authorizer every user may impersonate, as a superuser always may.
    """
    name = head.headers.get(USER, "")
    if not name:
        raise ApiError.bad_request(
            "impersonation of groups, a UID or extra fields needs a user: Impersonate-User is "
            "missing"
        )
    asked = list(_asked(head, name, user))
    if authorizer is not None and not user.is_superuser:
        for attributes in asked:
            decision = authorizer.authorize(attributes)
            if not decision.allowed:
                raise forbidden(attributes, decision)
    groups = tuple(values(head, GROUP))
    if not groups and (account := _account_of(name)) is not None:
        groups = service_account(*account).groups
    extra: dict[str, tuple[str, ...]] = {}
    for attributes in asked:
        if attributes.resource == "userextras":
            extra[attributes.subresource] = (
                *extra.get(attributes.subresource, ()),
                attributes.name,
            )
    return User(
        name=name,
        groups=_with_standing(name, groups),
        uid=head.headers.get(UID, ""),
        **({"extra": extra} if extra else {}),
    )


def _asked(head: Head, name: str, user: User) -> Iterator[Attributes]:
    """Yield everything that the sender has to be allowed to do."""
    if (account := _account_of(name)) is not None:
        namespace, bare = account
        yield Attributes(
            user=user, verb=VERB, resource="serviceaccounts", namespace=namespace, name=bare
        )
    else:
        yield Attributes(user=user, verb=VERB, resource="users", name=name)
    for group in values(head, GROUP):
        yield Attributes(user=user, verb=VERB, resource="groups", name=group)
    for header in head.headers:
        if header.startswith(EXTRA):
            key = unquote(header.removeprefix(EXTRA)).lower()
            for value in values(head, header):
                yield Attributes(
                    user=user,
                    verb=VERB,
                    group=API_GROUP,
                    version="v1",
                    resource="userextras",
                    subresource=key,
                    name=value,
                )
    if uid := head.headers.get(UID, ""):
        yield Attributes(
            user=user, verb=VERB, group=API_GROUP, version="v1", resource="uids", name=uid
        )


def _account_of(name: str) -> tuple[str, str] | None:
    """Return the namespace and name of the service account behind a user name."""
    if not name.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, bare = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    return (namespace, bare) if colon and namespace and bare and ":" not in bare else None


def _with_standing(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return groups with `system:authenticated` or `system:unauthenticated` added."""
    standing = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if standing in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, standing)

"""Requests of programs in the server's process that have to wait for webhooks."""

from collections.abc import Callable
from typing import Final, TypeVar

from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait
from dralab.apiserver.access.users import ADMIN, User
from dralab.apiserver.storage import Changed
from dralab.apiserver.verbs.state.context import Context, Scope

Found = TypeVar("Found")
TRIES: Final = 8


def waited(context: Context, call: Callable[[Scope], Found], user: User = ADMIN) -> Found:
    """Return the result of `call`, which is retried where it has to wait. ApiError.

    Without the store's lock: others go on, and where they change what was read it is tried again.
    """
    try:
        return call(context.scope(user=user))
    except MustWait:
        pass
    for _ in range(TRIES):
        try:
            scope = context.scope(user=user, store=context.store.view())
            scope.waits = True
            return call(context.may_compute(scope))
        except Changed:
            continue
    raise ApiError(
        "ServerTimeout",
        "others keep changing what the write depends on, please try again",
        details={"retryAfterSeconds": 1},
    )

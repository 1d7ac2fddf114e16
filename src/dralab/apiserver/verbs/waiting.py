"""Writes of programs in the server's process that have to wait for webhooks."""

from collections.abc import Callable
from typing import Final, TypeVar

from dralab.api.status import ApiError
from dralab.apiserver.scope import MustWait, ThreadScope, deadline, within
from dralab.apiserver.storage import Changed
from dralab.apiserver.verbs.server import Resources

Found = TypeVar("Found")
TRIES: Final = 8


def waited(resources: Resources, call: Callable[[Resources], Found]) -> Found:
    """Return the result of `call`, which is retried where it has to wait. ApiError.

    Without the store's lock: others go on, and where they change what was read it is tried again.
    """
    try:
        return call(resources)
    except MustWait:
        pass
    scope = ThreadScope(until=deadline(), waits=True, work=resources.context.long_work)
    for _ in range(TRIES):
        view = resources.over(resources.context.store.view())
        try:
            with within(scope):
                return call(view)
        except Changed:
            continue
    raise ApiError(
        "ServerTimeout",
        "others keep changing what the write depends on, please try again",
        details={"retryAfterSeconds": 1},
    )

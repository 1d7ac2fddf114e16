"""Answers requests beside the loop, and retries them if others changed what they had read.

Also the errors that a client gets if the store fails.
"""

from collections.abc import Callable
from typing import Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse
from dralab.apiserver.storage import Changed, StorageUnavailable, Store, StoreView, Undecided

# As kube-apiserver: a proxy between must not keep what a user may see.
NO_CACHE: Final = ("Cache-Control", "no-cache, private")
JSON: Final = (NO_CACHE, ("Content-Type", "application/json"))
TRIES: Final = 8  # tries of a write whose object others keep changing
# Here only other servers interfere, and a try costs little: of two that compete, one succeeds.
TRIES_AMONG_SERVERS: Final = 32


def tried(request: HttpRequest, store: Store, attempt: Callable[[StoreView], Answer]) -> Answer:
    """Return the answer of a request over a view of the store; `attempt` is called for each try.

    An answer that wrote to a shared store is right: the store has compared what was read. If
    nothing was written, another server may have acknowledged what this one has not heard of yet:
    the answer counts only if the state that it is about is as new as the request.
    """
    fresh = not store.shared
    for _ in range(TRIES_AMONG_SERVERS if store.shared else TRIES):
        view, seen = store.view(), store.revision
        try:
            answer = attempt(view)
        except Changed:
            continue
        if fresh or view.wrote or _is_final(answer):
            return answer
        try:
            store.refresh()
        except StorageUnavailable as error:
            return unavailable(error)
        if store.revision == seen:
            return answer
        fresh = True
    return refusal(
        ApiError(
            "ServerTimeout",
            f"The {request.method} operation against {request.path} could not be completed at "
            "this time, please try again.",
            details={"retryAfterSeconds": 1},
        )
    )


def _is_final(answer: Answer) -> bool:
    """Whether an answer is final: a stream has begun, or the store failed.

    If it failed, a write may have happened, and is not tried again.
    """
    return not isinstance(answer, HttpResponse) or answer.status >= 500


def unavailable(error: StorageUnavailable) -> HttpResponse:
    """Return the error for a write if the store fails: clients must not retry it blindly."""
    return refusal(write_failure(error))


def write_failure(error: StorageUnavailable) -> ApiError:
    """Return the error that a client gets if the store fails at its write."""
    if isinstance(error, Undecided):
        return ApiError("Timeout", f"whether it was written is unknown: {error}")
    text = f"the store does not accept writes: {error}"
    return ApiError("ServiceUnavailable", text, details={"retryAfterSeconds": 1})


def refusal(error: ApiError) -> HttpResponse:
    """Return an error as an answer."""
    headers = list(JSON)
    after = error.details.get("retryAfterSeconds")
    if after:
        headers.append(("Retry-After", str(after)))
    return HttpResponse(
        status=error.code,
        headers=headers,
        body=orjson.dumps(error.status(), option=orjson.OPT_APPEND_NEWLINE),
    )

"""The audit log around requests: when each stage is reached, and what is known then.

What a record holds, and of which requests there is one, is left to `audit`.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import orjson

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.apiserver.access.audit.events import Auditor, Record
from dralab.apiserver.access.audit.log import AuditSink
from dralab.apiserver.access.audit.policy import AuditPolicy
from dralab.apiserver.access.authorization.attributes import ALLOWED
from dralab.apiserver.access.users import User
from dralab.apiserver.http.access import attributes_of
from dralab.apiserver.http.encodings import bodies
from dralab.apiserver.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    TakesLong,
    WatchStream,
    with_headers,
)
from dralab.apiserver.storage import StorageUnavailable, Unstorable
from dralab.values.records import dataclass

OPEN = User(name="", groups=())


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What is recorded, and where."""

    policy: AuditPolicy
    sink: AuditSink


class Auditing:
    """Records the requests of one server; `user_of` finds out who sends one (ApiError)."""

    def __init__(
        self, auditor: Auditor, kinds: Kinds, user_of: Callable[[HttpRequest], User]
    ) -> None:
        self.auditor = auditor
        self.kinds = kinds
        self._user_of = user_of

    def answer(self, request: HttpRequest, handle: Callable[[HttpRequest], Answer]) -> Answer:
        """Answer a request, and record it."""
        record = request.record
        if record is None:  # else it is answered apart now, and was seen before
            record = request.record = self._received(request)
        if record is None:
            return handle(request)
        try:
            answer = handle(request)
        except TakesLong:
            raise
        except StorageUnavailable:
            self.auditor.complete(record, HTTPStatus.SERVICE_UNAVAILABLE, lambda: b"")
            raise
        except (RecursionError, Unstorable):  # what nests too deeply
            self.auditor.complete(record, HTTPStatus.BAD_REQUEST, lambda: b"")
            raise
        except Exception:
            self.auditor.panicked(record)
            raise
        record.decided(ALLOWED)  # where no authorizer was asked
        self.auditor.body(record, _sent(request))
        if isinstance(answer, HttpResponse):
            self.auditor.complete(record, answer.status, lambda: answer.content)
        elif isinstance(answer, WatchStream):
            self.auditor.started(record, answer.status)
        if request.audit_id:
            return answer  # the edge sends it with every answer
        return with_headers(answer, (("Audit-Id", record.event["auditID"]),))

    def began(self, request: HttpRequest, status: int) -> None:
        """Record that a long answer begins."""
        if request.record is not None:
            self.auditor.started(request.record, status)

    def ended(self, request: HttpRequest, status: int) -> None:
        """Record the end of a long answer."""
        if request.record is not None:
            self.auditor.complete(request.record, status, lambda: b"")

    def refused(self, request: HttpRequest, error: ApiError) -> None:
        """Record that a credential was not accepted, or that its owner may not act as another."""
        if error.code == HTTPStatus.FORBIDDEN and request.impersonator is not None:
            record = self._asked(request, request.impersonator)
            if record is not None:
                self.auditor.complete(record, error.code, lambda: orjson.dumps(error.status()))
            return
        if error.code != HTTPStatus.UNAUTHORIZED:
            return
        record = self._asked(request, OPEN)
        if record is not None:
            status = {"status": "Failure", "message": error.message, "reason": error.reason}
            self.auditor.rejected(record, status | {"code": error.code})

    def close(self) -> None:
        """Close the log."""
        self.auditor.sink.close()

    def _received(self, request: HttpRequest) -> Record | None:
        try:
            user = request.user or self._user_of(request)
        except ApiError as error:
            self.refused(request, error)
            return None
        return self._asked(request, user)

    def _asked(self, request: HttpRequest, user: User) -> Record | None:
        query = f"?{request.query}" if request.query else ""
        sender = request.impersonator or user
        return self.auditor.received(
            attributes_of(request, self.kinds, sender),
            impersonated=None if user is sender else user,
            constraint=request.constraint,
            uri=f"{request.path}{query}",
            headers=request.headers,
            peer=request.peer,
            audit_id=request.audit_id,
        )


def _sent(request: HttpRequest) -> Any:
    """Return the object in a body; nothing if it cannot be read."""
    if not request.body:
        return None
    media = bodies.media_type(request.headers.get("content-type", ""))
    if media.endswith("+json"):
        media = "application/json"
    elif media.endswith("+yaml"):
        media = "application/yaml"
    try:
        return bodies.decode(request.body, media, "", count_repeats=False).value
    except ApiError:
        return None

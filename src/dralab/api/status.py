"""The errors that reach a client: metav1.Status, as an exception.

Sources: k8s.io/apimachinery `api/errors` (reasons and texts), `util/validation/field` (causes).
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NewType

from dralab.values.records import dataclass

Reason = NewType("Reason", str)

CODES: Final[Mapping[str, int]] = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "NotAcceptable": 406,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Gone": 410,
    "Expired": 410,
    "RequestEntityTooLarge": 413,
    "UnsupportedMediaType": 415,
    "Invalid": 422,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServerTimeout": 500,
    "StorageReadError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One of the facts behind an error: `reason` for machines, `field` where it sits."""

    reason: str
    message: str
    field: str = ""

    def as_mapping(self) -> dict[str, str]:
        """Return the wire form; an empty reason or field is left out."""
        found = {"reason": self.reason} if self.reason else {}
        found["message"] = self.message
        if self.field:
            found["field"] = self.field
        return found


class ApiError(Exception):
    """A refusal in the words of the API: reason, code, message, and details for machines.

    >>> ApiError.not_found("pods", "web").code
    404
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: int | None = None,
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Cause] = (),
    ) -> None:
        super().__init__(message)
        self.reason = Reason(reason)
        self.message = message
        self.code = code if code is not None else CODES.get(reason, HTTPStatus.BAD_REQUEST)
        self.details: dict[str, Any] = dict(details or {})
        self.causes: tuple[Cause, ...] = tuple(causes)
        # The token that goes on with an expired list; it travels in the Status' metadata.
        self.list_continue = ""
        self._has_details = details is not None

    def has_cause(self, reason: str) -> bool:
        """Return whether one of its causes has a reason, such as `NamespaceTerminating`."""
        return any(cause.reason == reason for cause in self.causes)

    def status(self) -> dict[str, Any]:
        """Return the error as a v1 Status object."""
        details = dict(self.details)
        if self.causes:
            details["causes"] = [cause.as_mapping() for cause in self.causes]
        found: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.list_continue} if self.list_continue else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            found["reason"] = self.reason
        if details or self._has_details:
            found["details"] = details
        found["code"] = self.code
        return found

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> "ApiError":
        """Return the error that a Status object stands for."""
        details = dict(status.get("details") or {})
        causes = tuple(
            Cause(
                reason=cause.get("reason", ""),
                message=cause.get("message", ""),
                field=cause.get("field", ""),
            )
            for cause in details.pop("causes", None) or ()
        )
        return cls(
            status.get("reason", ""),
            status.get("message", ""),
            code=status.get("code"),
            details=details if status.get("details") is not None else None,
            causes=causes,
        )

    @classmethod
    def failed(cls, message: str) -> "ApiError":
        """An InternalError, as a real server also answers to some mistakes of clients."""
        return cls("", message, code=HTTPStatus.INTERNAL_SERVER_ERROR)

    @classmethod
    def bad_request(cls, message: str) -> "ApiError":
        """A bad request."""
        return cls("BadRequest", message)

    @classmethod
    def not_found(cls, resource: str, name: str, *, group: str = "") -> "ApiError":
        """The object does not exist; `resource` is the plural."""
        return cls(
            "NotFound",
            f'{_qualified(resource, group)} "{name}" not found',
            details=_named(resource, name, group),
        )

    @classmethod
    def already_exists(cls, resource: str, name: str, *, group: str = "") -> "ApiError":
        """The object exists already; `resource` is the plural."""
        return cls(
            "AlreadyExists",
            f'{_qualified(resource, group)} "{name}" already exists',
            details=_named(resource, name, group),
        )

    @classmethod
    def conflict(cls, resource: str, name: str, why: str, *, group: str = "") -> "ApiError":
        """The object was changed since the writer read it; `resource` is the plural."""
        return cls(
            "Conflict",
            f'Operation cannot be fulfilled on {_qualified(resource, group)} "{name}": {why}',
            details=_named(resource, name, group),
        )

    @classmethod
    def forbidden(cls, resource: str, name: str, why: str, *, group: str = "") -> "ApiError":
        """The object may not be written; `resource` is the plural."""
        return cls(
            "Forbidden",
            f'{_qualified(resource, group)} "{name}" is forbidden: {why}',
            details=_named(resource, name, group),
        )


class ignoring:  # noqa: N801 - as contextlib.suppress
    """Go on where the API refuses for one of some reasons.

    >>> with ignoring("NotFound"):
    ...     raise ApiError.not_found("pods", "web")
    """

    __slots__ = ("_reasons",)

    def __init__(self, *reasons: str) -> None:
        self._reasons = reasons

    def __enter__(self) -> None:
        """Nothing is needed before."""

    def __exit__(self, _type: object, error: object, _traceback: object) -> bool:
        return isinstance(error, ApiError) and error.reason in self._reasons


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _named(resource: str, name: str, group: str) -> dict[str, str]:
    found = {"name": name}
    if group:
        found["group"] = group
    return found | {"kind": resource}

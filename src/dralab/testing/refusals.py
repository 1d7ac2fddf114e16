"""Errors of a server, or of a proxy before it, that refuses a request.

Each is one that a real cluster gives: the code, the reason and the words that a client reads. When
they are given is left to `plan`.
"""

from collections.abc import Mapping
from typing import Final

from dralab.api.status import CODES, ApiError
from dralab.apiserver.access.admission.webhooks.reviews import denial
from dralab.testing.faults import PlannedFault

REASONS: Final[Mapping[int, str]] = {
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
WEBHOOK: Final = "policy.example.com"
# What kube-apiserver tells a client to wait when a queue of API priority and fairness is full.
RETRY_AFTER: Final = 1


def refused_with(code: int) -> ApiError:
    """Return the error of a server that refuses a request with one of its codes."""
    reason = REASONS[code]
    assert CODES[reason] == code  # noqa: S101 - the table above
    details = {"retryAfterSeconds": RETRY_AFTER} if code == CODES["TooManyRequests"] else None
    return ApiError(reason, "the server is overloaded", code=code, details=details)


def no_answer() -> ApiError:
    """Return the error of a client whose connection was lost."""
    return ApiError("ServiceUnavailable", "the server does not answer: the connection was lost")


def lasting_refusal(fault: PlannedFault) -> ApiError:
    """Return what is answered while a fault lasts: `throttle`, `deny`, credentials, `outage`."""
    match fault.fault:
        case "throttle":
            return refused_with(429)
        case "expire-credentials":
            # For a token and for a client certificate alike: TLS asks for one, authentication
            # decides (kube-apiserver: x509.RequestClientCert).
            return ApiError("Unauthorized", "Unauthorized")
        case "deny" if fault.code == CODES["Forbidden"]:
            return denial(WEBHOOK, {"code": fault.code, "reason": "Forbidden"})
        case "deny":
            why = "context deadline exceeded"
            text = f'Internal error occurred: failed calling webhook "{WEBHOOK}": {why}'
            return ApiError("InternalError", text)
        case _:
            return no_answer()


def lasts(fault: PlannedFault) -> bool:
    """Return whether a fault that a request triggers goes on after it."""
    return fault.fault in {"throttle", "deny"}

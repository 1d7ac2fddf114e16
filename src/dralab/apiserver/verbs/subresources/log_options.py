"""The options of a pod's log: how much of it, from when on.

Source: k8s.io/kubernetes `pkg/apis/core/validation` (ValidatePodLogOptions).
"""

import re
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.status import ApiError
from dralab.apiserver.verbs.state.options import Query, integer_of
from dralab.kernel.times import TimeError, from_rfc3339

TIME: Final = "2006-01-02T15:04:05Z07:00"
POSITIVE: Final = "must be greater than 0"
YEAR: Final = re.compile(r"[0-9]{4}")


def check_log_options(query: Query, pod: str) -> None:
    """Refuse options that cannot be read, or make no sense. ApiError."""
    numbers = {
        name: integer_of(query[name][0])
        for name in ("tailLines", "limitBytes", "sinceSeconds")
        if query.get(name) and query[name][0]
    }
    since = query.get("sinceTime", [""])[0]
    if since:
        _check_time(since)
    errors: list[FieldError] = []
    if (lines := numbers.get("tailLines", 0)) < 0:
        why = "must be greater than or equal to 0"
        errors.append(fields.invalid_value("tailLines", lines, why))
    if (most := numbers.get("limitBytes", 1)) < 1:
        errors.append(fields.invalid_value("limitBytes", most, POSITIVE))
    if since and "sinceSeconds" in numbers:
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(fields.forbidden("[]", why))
    elif (seconds := numbers.get("sinceSeconds", 1)) < 1:
        errors.append(fields.invalid_value("sinceSeconds", seconds, POSITIVE))
    if query.get("stream"):
        errors.append(fields.forbidden("stream", "may not be specified"))
    if errors:
        raise fields.invalid("PodLogOptions", pod, errors)


def _check_time(text: str) -> None:
    try:
        from_rfc3339(text)
    except TimeError:
        part = "2006" if not YEAR.match(text) else "-"
        shown = text if part == "2006" else text[4:]
        raise ApiError.bad_request(
            f'parsing time "{text}" as "{TIME}": cannot parse "{shown}" as "{part}"'
        ) from None

"""The timeout of a request: `?timeout=5s`.

Source: k8s.io/apiserver `endpoints/filters/request_deadline.go`. Watches, which have
`timeoutSeconds`, are left alone.
"""

from urllib.parse import parse_qs

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.http.routing import is_watch


def timeout_of(request: HttpRequest) -> int | None:
    """Return the timeout of a request, in nanoseconds; None if it sets none.

    ApiError: it is not a duration as Go reads one.
    """
    if "timeout=" not in request.query:
        return None
    query = parse_qs(request.query)
    text = query.get("timeout", [""])[0]
    if not text or is_watch(query):
        return None
    # Imported only when needed: servers start faster.
    from dralab.cel.errors import CelError
    from dralab.cel.functions.times import duration

    try:
        found = int(duration(text))
    except CelError:
        what = "missing unit in duration" if text.isdecimal() else "invalid duration"
        raise ApiError.bad_request(
            f'invalid timeout specified in the request URL - time: {what} "{text}"'
        ) from None
    return found if found > 0 else None

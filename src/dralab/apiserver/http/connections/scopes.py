"""Requests as ASGI's scopes have them. Bodies and answers are left to `asgi_base`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.apiserver.http.messages import HttpRequest

# In the `state` of ASGI's scope: the certificate (DER) of a client that TLS has verified.
CLIENT_CERTIFICATE: Final = "client_certificate"


def request_of(scope: Mapping[str, Any], *, method: str = "") -> HttpRequest:
    """Return the request of a scope, without its body; `method` where the scope has none."""
    client = scope.get("client")
    raw: Sequence[tuple[bytes, bytes]] = scope["headers"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    repeated = None
    if len(headers) < len(raw):
        repeated = _repeated(raw)
        # The first of them counts, as Go reads them.
        headers |= {name: values[0] for name, values in repeated.items()}
    return HttpRequest(
        method=method or scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        peer=client[0] if client else "",
        certificate=(scope.get("state") or {}).get(CLIENT_CERTIFICATE, b""),
        repeated=repeated,
    )


def _repeated(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Return all values of the headers that came more than once."""
    found: dict[str, list[str]] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return {name: values for name, values in found.items() if len(values) > 1}
